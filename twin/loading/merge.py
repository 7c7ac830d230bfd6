"""One tree over another: mappings merge, everything else replaces, lists included. The phases
of a run are the one list whose items a mapping changes, by their places from 0 (`--set
phases.0.steps=100`), since the nearest plan of one phase has to be said somehow.

A name may stand for a whole section (a catalog part, or a member of an axis such as a schedule). A
mapping over a name refines what the name stands for, so names are opened up only where something
refines them; a name over a mapping replaces it. Where sections are told apart by their `kind`, one
of another kind starts anew, because the settings of its predecessor mean nothing to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from twin.loading.phases import PHASES
from twin.loading.tree import Branch, Child, Items, KeyPath, Leaf, Node

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
