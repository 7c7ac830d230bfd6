"""Written values as a tree in which every key and value knows where it stands.

One tree over another: mappings merge, everything else replaces, lists included. The phases
of a run are the one list whose items a mapping changes, by their places from 0 (`--set
phases.0.steps=100`), since the nearest plan of one phase has to be said somehow.

A name may stand for a whole section (a catalog part, or a member of an axis such as a schedule). A
mapping over a name refines what the name stands for, so names are opened up only where something
refines them; a name over a mapping replaces it. Where sections are told apart by their `kind`, one
of another kind starts anew, because the settings of its predecessor mean nothing to it.

Phases of a run as they are written: sections that go over those of the scenario, so that what
they come to, and what is wrong with it, is known with the place of every value.

The nearest valid word to a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, TypeAlias

from twin.errors import Origin, Problem
from twin.scenario import OF_A_PHASE
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


OpenName = Callable[[KeyPath, Leaf], Node]
"""What the name at a path stands for; the leaf itself where it stands for nothing."""


def merge(
    base: Node, over: Node, open_name: OpenName, unions: Collection[KeyPath], path: KeyPath = ()
) -> Node:
    """`over` on top of `base`; at the paths `unions` a `kind` decides what the section is. Merging
    is associative where no name is refined."""
    if not isinstance(over, Branch):
        return over
    if isinstance(base, Leaf):
        base = open_name(path, base)
    if path == (PHASES,) and isinstance(base, Items) and _are_places(over, base):
        nodes = list(base.nodes)
        for key, child in over.children.items():
            place = int(key)
            nodes[place] = merge(nodes[place], child.node, open_name, unions, (*path, key))
        return Items(tuple(nodes), base.origin)
    if not isinstance(base, Branch) or (path in unions and _another_kind(base, over)):
        return over
    children = dict(base.children)
    for key, child in over.children.items():
        below = children.get(key)
        if below is not None:
            merged = merge(below.node, child.node, open_name, unions, (*path, key))
            child = Child(child.key, merged)  # noqa: PLW2901  # the merged child takes its place
        children[key] = child
    return Branch(children, over.origin)


def _are_places(over: Branch, base: Items) -> bool:
    """Whether every key is the place of an item, counted from 0."""
    keys = over.children
    return bool(keys) and all(key.isdecimal() and int(key) < len(base.nodes) for key in keys)


def _another_kind(base: Branch, over: Branch) -> bool:
    before, after = base.leaf("kind"), over.leaf("kind")
    return bool(before and after and before.value != after.value)


PHASES: Final = "phases"
"""The list of a scenario that holds them."""

_MISSING: Final = "TW011"


def in_a_run(path: KeyPath) -> KeyPath:
    """The path that a field of a phase has in a scenario of its own; any other as it is."""
    return path[2:] if path[:1] == (PHASES,) and path[2:3] and path[2] in OF_A_PHASE else path


def with_phases(tree: Branch, over: Callable[[Branch, Branch], Branch]) -> Branch:
    """The tree whose phases hold whole sections: each `over` the scenario's own."""
    child = tree.children.get(PHASES)
    if child is None or not isinstance(child.node, Items):
        return tree
    nodes = tuple(_whole(tree, node, over) for node in child.node.nodes)
    return replace_at(tree, (PHASES,), Child(child.key, Items(nodes, child.node.origin)))


def _whole(tree: Branch, phase: Node, over: Callable[[Branch, Branch], Branch]) -> Node:
    if not isinstance(phase, Branch):
        return phase
    own = {key: child for key, child in phase.children.items() if key in OF_A_PHASE}
    base = {key: tree.children[key] for key in own if key in tree.children}
    merged = over(Branch(base, tree.origin), Branch(own, phase.origin))
    return Branch({**phase.children, **merged.children}, phase.origin)


def told_once(problems: Iterable[Problem]) -> list[Problem]:
    """The problems without those that a phase has only because the scenario has them."""
    found = list(problems)
    known = {_mistake(one, one.path) for one in found}

    def is_inherited(one: Problem) -> bool:
        path = tuple(one.path.split("."))
        plain = in_a_run(path)
        return plain != path and _mistake(one, ".".join(plain)) in known

    return [one for one in found if not is_inherited(one)]


def _mistake(problem: Problem, path: str) -> tuple[str, str, Origin | None]:
    """What makes it the same as another; a missing key is missing nowhere in particular."""
    return problem.code, path, None if problem.code == _MISSING else problem.origin


_LISTED = 12
"""A hint that lists more words than this is no help."""
_CLOSE = 0.7
"""Similarity (difflib) from which a word is taken for a slip: at 0.6 `mha` would become `mla`."""


def nearest(word: str, options: Iterable[str]) -> str | None:
    """The option that a mistyped or shortened word most likely means."""
    names = {option.lower().replace("-", "_"): option for option in options}
    loose = word.lower().replace("-", "_")
    close = get_close_matches(loose, names, n=1, cutoff=_CLOSE)
    holding = [name for name in names if loose in name] if len(loose) > 2 else []
    found = close or holding
    return names[found[0]] if found else None


def hint(word: str, options: Iterable[str], listing: str = "write one of") -> str:
    """`did you mean` the nearest option, or else what there is to choose from."""
    choices = list(options)
    near = nearest(word, choices)
    if near is not None:
        return f"did you mean `{near}`?"
    shown = ", ".join(choices[:_LISTED]) + (", ..." if len(choices) > _LISTED else "")
    return f"{listing}: {shown}" if choices else ""
