"""What a file is, by its content alone, and which commands read it.

A format is a file of `formats`: what it is in words; a sign of it for each language that it may be
written in (a pattern, of `any` language or of none), or how a log says a step; and the verbs that
read it, each with the further words of its command. Of formats that all fit a file, those of the
lowest `order` count: a launch in verl's words is also one in Megatron-LM's.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal, cast

from twin.errors import Problem
from twin.loading.files import unpacked

HEAD: Final = 1 << 20
"""Bytes of a file by which it is recognised."""
LONGEST: Final = 20_000
"""Characters of a log's line that are looked at: steps stand at the beginning."""
Language = Literal["json", "toml", "python", "yaml", "arguments", "shell"]
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LANGUAGES: Final[tuple[tuple[Language, str], ...]] = (
    ("shell", r"#!"),
    ("json", r"\{|\[\s*($|[\[{\"])"),
    ("toml", r"\[\[?[\w.\"' -]+\]\]?\s*(#.*)?$"),
    ("python", r"(from [\w.]+ import|import \w|def \w|class \w|@\w|[rR]?(\"\"\"|'''))"),
    ("yaml", r"(---|%YAML|- |[\"']?[\w./-]+[\"']?\s*:(\s|$))"),
    ("arguments", r"-"),
)
"""Languages by the first line that is no remark; `#!` counts as none."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format of files."""

    name: str
    words: str
    """What such a file is."""
    signs: Mapping[str, re.Pattern[str]]
    """What such a file has somewhere, by language."""
    step: re.Pattern[str] | None
    """A line of a log that says a step."""
    sequence: re.Pattern[str] | None
    """A line before it that says the tokens of a sequence."""
    uses: Mapping[str, str]
    """Verbs that read such a file, each with the further words of the command."""
    order: int

    def fits(self, text: str, language: Language) -> bool:
        """Whether a text that is written so may be of this format."""
        signs = (self.signs.get("any"), self.signs.get(language))
        if any(one is not None and one.search(text) for one in signs):
            return True
        step = self.step
        return step is not None and any(step.search(one, 0, LONGEST) for one in text.split("\n"))

    def commands(self, file: str) -> list[str]:
        """What to type to have such a file read."""
        name = shlex.quote(file)
        return [f"twin {verb} {name} {rest}".strip() for verb, rest in self.uses.items()]


@cache
def formats() -> Mapping[str, Format]:
    """Every format by name."""
    files = sorted(Path(__file__).with_name("formats").glob("*.toml"))
    return {file.stem: _format(file) for file in files}


def _format(file: Path) -> Format:
    told = tomllib.loads(file.read_text(encoding="utf-8"))
    signs = {key: re.compile(sign, re.MULTILINE) for key, sign in told.get("signs", {}).items()}
    step, tokens = (re.compile(told[key]) if key in told else None for key in ("step", "sequence"))
    order = told.get("order", 0)
    return Format(file.stem, told["words"], signs, step, tokens, told["uses"], order)


def sign(name: str) -> re.Pattern[str]:
    """The sign of a format in any language."""
    return formats()[name].signs["any"]


def read_by(verb: str) -> tuple[str, ...]:
    """The names of the formats that a verb reads."""
    return tuple(name for name, one in formats().items() if verb in one.uses)


def recognise(path: Path) -> tuple[Format, ...]:
    """The formats of a file; several where it holds the output of several programs, none where it
    is no file, cannot be read or is of no format that is known."""
    try:
        return recognised(head(path)) if path.is_file() else ()
    except OSError:
        return ()


def recognised(begin: bytes) -> tuple[Format, ...]:
    """The formats of a file that begins so, unpacked."""
    text = plain(begin.removeprefix(b"\xef\xbb\xbf")).replace("\r\n", "\n")
    written = language(text)
    found = [one for one in formats().values() if one.fits(text, written)]
    least = min((one.order for one in found), default=0)
    return tuple(one for one in found if one.order == least)


def stranger(found: Sequence[Format], file: str, verb: str) -> Problem | None:
    """That a file of these formats is for other verbs, with the commands; None where it is for this
    one, or of no format that is known."""
    if not found or any(verb in one.uses for one in found):
        return None
    commands = " or ".join(f"`{one}`" for form in found for one in form.commands(file))
    return Problem("TW041", "", f"`{file}` is {found[0].words}", f"read it with {commands}")


def head(path: Path) -> bytes:
    """The first bytes of a file, unpacked. Raises `OSError`."""
    with unpacked(path) as file:
        return file.read(HEAD)


def plain(text: bytes) -> str:
    """Text without colours, whatever is none of it replaced."""
    return _COLOUR.sub("", text.decode("utf-8", "replace"))


def language(text: str) -> Language:
    """What a text is written in, by its first line that is no remark; a script where nothing says
    anything else.

    >>> language("# mine\\n[training]\\nsteps = 10")
    'toml'
    >>> language("--num-layers 32 --hidden-size 4096")
    'arguments'
    """
    first = "#!" if text.startswith("#!") else _first(text)
    found = (name for name, begin in _LANGUAGES if re.match(begin, first))
    return cast("Language", next(found, "shell"))


def _first(text: str) -> str:
    """The first line that is no remark."""
    place = 0
    while place < len(text):
        end = text.find("\n", place)
        end = len(text) if end < 0 else end
        line = text[place : min(end, place + LONGEST)].strip()
        if line and line[0] != "#":
            return line
        place = end + 1
    return ""
