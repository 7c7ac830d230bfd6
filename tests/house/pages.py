"""A page of Markdown as what its reader does: files to save, commands to type, and what is said of
what they print.

    ```sh                     each line is a command; `# exit 4` says how it ends
    ```text                   what the command above it prints; `...` leaves something out
    ```yaml my.yaml           a file to save under that name
    ```python                 a script
    <!-- twin run S -->       the paragraph or table below it says what this command prints
    `twin check my.yaml`      a command as well, unless it names its arguments in capitals; in the
                              first cell of a row, the row says what it prints
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from typing import Literal

_UNITS = "[KMGT]i?B|[GT]bps|USD|GPU-h|TFLOP/s|tok/s(?:/GPU)?|ns|us|ms|s|min|h|d|days"
QUANTITY = re.compile(rf"(?<![\w.,])[+-]?\d[\d,]*(?:\.\d+)?[kMGTP]?(?: ?%| ?(?:{_UNITS})\b)")
"""A number with its unit, as reports print it: `29.4 s`, `+17.5 %`, `7.73M USD`."""

ALONE = ("catalog", "runs", "schema", "seals")
"""Verbs that answer without an argument."""

_FORM = re.compile(r"(?<![\w.=-])[A-Z][A-Z.]*(?![\w=])")
_FENCE = re.compile(r"```(\w*) ?(.*)")
_MARK = re.compile(r"<!-- (twin .*) -->")
_SOURCED = re.compile(r"\[[^\]]*\]\(https?:[^)]*\)")
_CODE = re.compile(r"`([^`]*)`")
_QUOTED = re.compile(r'"([^"]+)"')

Kind = Literal["save", "command", "python", "shown", "says"]


@dataclass(frozen=True)
class Step:
    """One thing to do on the way through a page, or one thing that the page says."""

    line: int
    kind: Kind
    text: str
    of: str = ""
    """The name of the file to save; the command whose output is shown or said; empty: the last
    command, and nothing at all where `kind` is `says`."""


@dataclass
class _Block:
    """A fence, or lines between blank ones: the first line's number, the fence's language (None: no
    fence) and what follows it, and the lines."""

    line: int
    language: str | None
    words: str
    body: list[str]


def steps(page: Path) -> Iterator[Step]:
    """What a reader does and is told, from top to bottom."""
    mark = ""
    for block in _blocks(page.read_text().splitlines()):
        line, text = block.line, "\n".join(block.body)
        if found := _MARK.fullmatch(text):
            mark = found[1]
            continue
        match block.language:
            case None:
                yield from _said(line, block.body, mark)
            case "sh":
                yield from (Step(line, "command", one) for one in block.body if one.strip())
            case "yaml" | "json":
                yield Step(line, "save", text + "\n", block.words)
            case "python":
                yield Step(line, "python", text)
            case "text":
                yield Step(line, "shown", text, mark)
            case other:
                raise ValueError(f"{page}:{line}: nobody reads {other}")
        mark = ""


def _blocks(lines: list[str]) -> Iterator[_Block]:
    block: _Block | None = None
    for number, line in enumerate([*lines, ""], 1):
        opened = _FENCE.fullmatch(line)
        if block and block.language is not None and line != "```":
            block.body.append(line)
        elif block and (block.language is not None or opened or not line.strip()):
            yield block
            block = (
                _Block(number, opened[1], opened[2], [])
                if block.language is None and opened
                else None
            )
        elif opened:
            block = _Block(number, opened[1], opened[2], [])
        elif block:
            block.body.append(line)
        elif line.strip():
            block = _Block(number, None, "", [line])


def _said(line: int, body: list[str], mark: str) -> Iterator[Step]:
    """Commands inside of sentences and cells, then what is said of what was printed: of the command
    of a row's first cell by this row, of `mark` by everything else."""
    rest: list[str] = []
    for number, one in enumerate(body, line):
        first, *cells = one.strip("|").split("|")
        command = next(_commands(first), "") if one.startswith("|") else ""
        if command and unsourced(" ".join(cells)):
            yield Step(number, "says", " ".join(cells), command)
        else:
            rest.append(one)
    yield from (Step(line, "command", one) for one in _commands(" ".join(rest)))
    if rest:
        yield Step(line, "says", "\n".join(rest), mark)


def _commands(text: str) -> Iterator[str]:
    """Commands in code, but for a verb that needs an argument and has none, and for those that only
    show a form: `twin compare A B`."""
    for code in _CODE.findall(text):
        verb, _, rest = code.removeprefix("twin ").partition(" ")
        if code.startswith("twin ") and (rest or verb in ALONE) and not _FORM.search(rest):
            yield code


def unsourced(text: str) -> list[str]:
    """Quantities of a paragraph that are neither typed nor cited: not in code, and not the text of
    a link to where they were published."""
    return QUANTITY.findall(_CODE.sub("", _SOURCED.sub("", text)))


def missing_claims(text: str, printed: str) -> list[str]:
    """What a paragraph or table says and the output does not: quantities, and words in quotes.
    Those of a table's row must stand in one line of the output, which begins like the row."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    whole = " ".join(lines)
    missing: list[str] = []
    for is_row, group in groupby(text.splitlines(), lambda line: line.startswith("|")):
        if is_row:
            missing += [
                _beside(row, [row.replace("|", " ")], printed)
                for row in group
                if not _row_holds(row, lines)
            ]
        else:
            words = " ".join(group)
            said = [*unsourced(words), *_QUOTED.findall(words)]
            missing += [one for one in said if not re.search(_whole(one), whole)]
    return missing


def _row_holds(row: str, lines: list[str]) -> bool:
    label, *cells = (cell.strip() for cell in row.strip("|").split("|"))
    quantities = unsourced(" | ".join(cells))
    if not quantities:
        return True
    pattern = re.compile(rf"{re.escape(label)}\b.*?" + ".*?".join(map(_whole, quantities)))
    return any(pattern.match(line) for line in lines)


def missing_lines(text: str, printed: str) -> list[str]:
    """Pieces of an excerpt that the output does not hold, in this order; line breaks aside."""
    rest = " ".join(printed.split())
    missing: list[str] = []
    for piece in text.split("..."):
        wanted = " ".join(piece.split())
        if found := re.search(_whole(wanted), rest):
            rest = rest[found.end() :]
        else:
            missing.append(_beside(wanted, piece.splitlines(), printed))
    return missing


def _beside(wanted: str, lines: list[str], printed: str) -> str:
    """What is missing, and lines of the output that come closest: what to write instead."""
    choice = [" ".join(line.split()) for line in printed.splitlines() if line.strip()]
    near = [get_close_matches(" ".join(line.split()), choice, 1, 0.5) for line in lines]
    return "\n  ".join([wanted, *(f"now: {one}" for found in near for one in found)])


def _whole(words: str) -> str:
    """A pattern of these words and no longer ones: `9.4 s` is not in `29.4 s`."""
    return rf"(?<![\d.,]){re.escape(words)}(?!\w)"
