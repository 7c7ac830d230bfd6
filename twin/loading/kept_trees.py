"""Trees of the shipped YAML files, kept beside Python's bytecode: reading the text takes ten times
as long.

A kept tree is JSON: a node is its line, column and width, and its value, which is a scalar, a list
of nodes, or an object with the place of each key. It holds for one text and for the code that read
it. Files with problems are not kept, and nothing is where no folder can be written.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, cast

from twin.errors import Origin
from twin.loading import yaml_text
from twin.loading.tree import Branch, Child, Items, Leaf, Node

Locate: TypeAlias = Callable[[int, int, int], Origin]
"""The origin of a 0-based line and column, so many characters wide."""


def folders(module: str) -> tuple[Path, ...]:
    """Where what a module works out once may be kept: beside its bytecode, or in the user's
    cache."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twin"
    return Path(module).parent / "__pycache__", user


def kept_tree(name: str, text: str, locate: Locate) -> Node | None:
    """The tree of the file of this name, if it was kept and its text is the same."""
    for folder in folders(__file__):
        try:
            found = json.loads((folder / f"{name}.json").read_bytes())
            if found["of"] == _digest(text):
                return _node(found["tree"], locate)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def keep_tree(name: str, text: str, tree: Node) -> None:
    """Keep the tree of a file where that is possible."""
    document = json.dumps({"of": _digest(text), "tree": _plain(tree)}, separators=(",", ":"))
    for folder in folders(__file__):
        unfinished = folder / f"{name}.{os.getpid()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            unfinished.write_text(document, encoding="utf-8")
            unfinished.replace(folder / f"{name}.json")
        except OSError:
            continue
        return


def _digest(text: str) -> str:
    return hashlib.sha256(_code() + text.encode()).hexdigest()


@cache
def _code() -> bytes:
    """What read and kept a tree."""
    return b"".join(Path(file).read_bytes() for file in (__file__, str(yaml_text.__file__)))


def _plain(node: Node) -> list[Any]:
    match node:
        case Leaf():
            value: Any = node.value
        case Items():
            value = [_plain(item) for item in node.nodes]
        case Branch():
            value = {
                key: [*_place(child.key), _plain(child.node)]
                for key, child in node.children.items()
            }
    return [*_place(node.origin), value]


def _place(origin: Origin) -> tuple[int, int, int]:
    return origin.line - 1, origin.column - 1, origin.width


def _node(kept: Any, locate: Locate) -> Node:
    line, column, width, value = kept
    origin = locate(line, column, width)
    if isinstance(value, dict):
        children: dict[str, Child] = {}
        for key, (line, column, width, below) in cast(dict[str, Any], value).items():
            children[key] = Child(locate(line, column, width), _node(below, locate))
        return Branch(children, origin)
    if isinstance(value, list):
        return Items(tuple(_node(item, locate) for item in cast(list[Any], value)), origin)
    return Leaf(value, origin)
