"""Phases of a run as they are written: sections that go over those of the scenario, so that what
they come to, and what is wrong with it, is known with the place of every value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from twin.errors import Origin, Problem
from twin.loading.tree import Branch, Child, Items, KeyPath, Node, replace_at
from twin.scenario import OF_A_PHASE

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
