"""TOML text to a tree with positions: values by the standard library, places by the lines that
begin with their keys."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final, cast

from twin.errors import Origin, Problem, UsageError
from twin.loading.tree import Branch, Child, Items, Leaf, Node

_MOST: Final = 250_000
"""Characters of a text, as of YAML."""
_DEEPEST: Final = 100
_HEADER: Final = re.compile(r"\s*\[\[?([^\]]+)\]\]?\s*(#.*)?$")
_KEY: Final = re.compile(r"(\s*)([\w.\"'-]+)\s*=")


def read_toml(text: str, name: str) -> Branch:
    """The tree of a text, which problems call `name`. Raises `UsageError` where it is no TOML."""
    top = Origin(name, 1, 1, text[:1] and text.split("\n", 1)[0][:200], 1)
    try:
        if len(text) > _MOST:
            message = f"more than {_MOST:,} characters"
            raise UsageError([Problem("TW002", "", message, "", top)])
        values = tomllib.loads(text)
        return cast("Branch", _node(values, "", _places(text, name), top))
    except tomllib.TOMLDecodeError as error:
        raise UsageError([Problem("TW002", "", f"not TOML: {error}", "", top)]) from None
    except RecursionError:
        message = f"deeper than {_DEEPEST} levels"
        raise UsageError([Problem("TW002", "", message, "", top)]) from None


def _places(text: str, name: str) -> dict[str, Origin]:
    """Where each key stands, by dotted path; of equal ones the last."""
    found: dict[str, Origin] = {}
    section = ""
    for number, line in enumerate(text.split("\n"), start=1):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            section = re.sub(r"[\s\"']", "", header[1])
            found[section] = Origin(name, number, 1, line, len(line))
        elif key:
            path = ".".join(filter(None, (section, re.sub(r"[\"']", "", key[2]))))
            found[path] = Origin(name, number, len(key[1]) + 1, line, len(key[2]))
    return found


def _node(value: Any, path: str, places: dict[str, Origin], around: Origin) -> Node:
    if path.count(".") > _DEEPEST:
        raise RecursionError
    here = places.get(path, around)
    if isinstance(value, dict):
        children = {
            key: Child(below.origin, below)
            for key, held in cast("dict[str, Any]", value).items()
            for below in [_node(held, f"{path}.{key}" if path else key, places, here)]
        }
        return Branch(children, here)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return Items(
            tuple(_node(one, f"{path}.{i}", places, here) for i, one in enumerate(items)), here
        )
    return Leaf(value if isinstance(value, str | int | float | bool) else str(value), here)
