"""A resolved scenario for people: every leaf with its origin; and the hash that names it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from twin.errors import Origin, printable
from twin.scenario import Root
from twin.sources import Sourced, Written

_Json: TypeAlias = "dict[str, _Json] | list[_Json] | str | int | float | bool | None"

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*( [A-Za-z0-9_./+(-][A-Za-z0-9_./+(),-]*)*")
_RESERVED = re.compile(r"(?i)true|false|null|~|[-+]?[0-9._]+(e[-+]?[0-9]+)?|0[xob][0-9a-f_]+|\.nan")
_COMMENT_COLUMN = 44


@dataclass(frozen=True, slots=True)
class Row:
    """One leaf of a resolved scenario: the value with its unit, where it was written, and how the
    number is known if it came from the catalog."""

    path: str
    value: Written
    origin: Origin
    known: Sourced | None = None


def rows(scenario: Root) -> tuple[Row, ...]:
    """Every leaf in the order of the fields; items of lists count from 0."""
    leaves = _leaves(scenario.model_dump(mode="json", by_alias=True), "")
    return tuple(
        Row(path, value, scenario.origin(path), scenario.ledger.get(path)) for path, value in leaves
    )


def resolve(scenario: Root, *, comments: bool = True) -> str:
    """The scenario written out whole, as YAML that loads to the same scenario; a comment beside
    each leaf says where it was written, and how a catalog number is known."""
    document = scenario.model_dump(mode="json", by_alias=True)
    lines = _lines(document, "", 0)
    return "".join(
        f"{_with_comment(scenario, text, path) if comments else text}\n" for text, path in lines
    )


def scenario_hash(scenario: Root) -> str:
    """16 hexadecimal digits that name what was computed: the SHA-256 of all values, catalog values
    and defaults included, without the scenario's name, expectations, sweep, start, comments,
    sources. A run without phases has the same name whether phases can be written or not."""
    left_out = {"name", "expect", "sweep", "start"}
    values = scenario.model_dump(mode="python", by_alias=True, exclude=left_out)
    values = {key: one for key, one in values.items() if one or key not in ("phases", "data")}
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _leaves(value: _Json, path: str) -> Iterator[tuple[str, Written]]:
    if isinstance(value, dict | list) and value:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in pairs:
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif not isinstance(value, dict):
        yield path, "[]" if isinstance(value, list) else value


def _lines(section: Mapping[str, _Json], path: str, depth: int) -> Iterator[tuple[str, str]]:
    """Lines of YAML, each with the path that its comment is about ("" for none)."""
    indent = "  " * depth
    for key, item in section.items():
        below = f"{path}.{key}" if path else key
        if isinstance(item, dict):
            yield f"{indent}{key}:", ""
            yield from _lines(item, below, depth + 1)
        elif isinstance(item, list) and item and all(isinstance(entry, dict) for entry in item):
            yield f"{indent}{key}:", ""
            for index, entry in enumerate(item):
                assert isinstance(entry, dict)
                (first, about), *rest = _lines(entry, f"{below}.{index}", depth + 2)
                yield f"{indent}  - {first.lstrip()}", about
                yield from rest
        else:
            yield f"{indent}{key}: {_written(item)}", below


def _written(value: _Json) -> str:
    """A scalar, or a list, as YAML on one line."""
    if isinstance(value, list):
        return f"[{', '.join(_written(item) for item in value)}]"
    if isinstance(value, dict):
        pairs = (f"{_written(key)}: {_written(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and not _RESERVED.fullmatch(value):
        return value
    # YAML reads only printable characters as they stand; a few of the others break lines.
    return json.dumps(value, ensure_ascii=not value.isprintable())


def _with_comment(scenario: Root, text: str, path: str) -> str:
    if not path:
        return text
    known = scenario.ledger.get(path)
    source = f", {known.source.id}" if known and known.source else ""
    how = f" ({known.kind}{source})" if known else ""
    origin = scenario.origin(path)
    where = printable(origin.text if origin.file == "--set" else str(origin))
    return f"{text:<{_COMMENT_COLUMN}}  # {where}{how}"
