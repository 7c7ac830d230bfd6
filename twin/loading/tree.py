"""Written values as a tree in which every key and value knows where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from twin.errors import Origin
from twin.sources import Sourced, Written

KeyPath = tuple[str, ...]
"""Keys from the root to a value; list items count from "0"."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One scalar; `known` says how the number is known, where that was written."""

    value: Written
    origin: Origin
    known: Sourced | None = None


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    nodes: tuple[Node, ...]
    origin: Origin


class Child(NamedTuple):
    """A value under a key; `key` is where the key stands."""

    key: Origin
    node: Node


@dataclass(frozen=True, slots=True)
class Branch:
    """A mapping."""

    children: Mapping[str, Child]
    origin: Origin

    def leaf(self, key: str) -> Leaf | None:
        """The scalar under a key, if there is one."""
        child = self.children.get(key)
        return child.node if child and isinstance(child.node, Leaf) else None


Node: TypeAlias = Leaf | Items | Branch


def plain(node: Node) -> Any:
    """The values without their positions: dicts, lists and scalars."""
    match node:
        case Leaf():
            return node.value
        case Items():
            return [plain(item) for item in node.nodes]
        case Branch():
            return {key: plain(child.node) for key, child in node.children.items()}


def walk(
    node: Node, path: KeyPath = (), key: Origin | None = None
) -> Iterator[tuple[KeyPath, Child]]:
    """Every value below and including `node`, parents first, with its path."""
    yield path, Child(key or node.origin, node)
    if isinstance(node, Branch):
        for name, child in node.children.items():
            yield from walk(child.node, (*path, name), child.key)
    elif isinstance(node, Items):
        for index, item in enumerate(node.nodes):
            yield from walk(item, (*path, str(index)))


def find(node: Node, path: KeyPath) -> Child | None:
    """The value at a path below `node`, with its key."""
    found = Child(node.origin, node)
    for step in path:
        match found.node:
            case Branch(children) if step in children:
                found = children[step]
            case Items(nodes) if step.isdecimal() and int(step) < len(nodes):
                found = Child(nodes[int(step)].origin, nodes[int(step)])
            case _:
                return None
    return found


def replace_at(node: Branch, path: KeyPath, child: Child) -> Branch:
    """The tree with another value at a path; sections on the way exist already."""
    head, *rest = path
    if rest:
        old = node.children[head]
        assert isinstance(old.node, Branch)
        child = Child(old.key, replace_at(old.node, tuple(rest), child))
    return Branch({**node.children, head: child}, node.origin)
