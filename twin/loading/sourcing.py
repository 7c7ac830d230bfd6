"""Who says a number: `{value, source, kind, range, note}` around it, or the default of its part."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from twin.errors import Origin, Problem
from twin.loading.files import read_tree
from twin.loading.tree import Branch, Child, Items, KeyPath, Leaf, Node, find, hint, walk
from twin.sources import KINDS, Kind, Source, Sourced, Written

_WRAPPER = {"value", "source", "kind", "range", "note"}
_QUANTITY = re.compile(r"\.?[0-9][0-9.]*(e[+-]?[0-9]+)? ?[A-Za-z]+(/[A-Za-z]+)?")


@dataclass(frozen=True, slots=True)
class Default:
    """What a part says once about all its numbers: `source` as written, and `kind`."""

    source: Leaf | None = None
    kind: Kind | None = None


def declared(tree: Branch) -> Default:
    """The `source` and `kind` at the top of a part."""
    kind = tree.leaf("kind")
    return Default(tree.leaf("source"), _kind(kind) if kind else None)


def is_number(value: Written) -> bool:
    """True for numbers and for quantities with a unit; no flag, name or date is one."""
    if isinstance(value, str):
        return _QUANTITY.fullmatch(value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_sources(path: Path) -> tuple[dict[str, Source], list[Problem]]:
    """The sources that a file lists as `id: {title, url, date}`."""
    tree, problems = read_tree(path)
    sources: dict[str, Source] = {}
    if tree is None:
        return sources, problems
    for name, child in tree.children.items():
        fields = _texts(child.node)
        if set(fields) == {"title", "url", "date"}:
            sources[name] = Source(name, fields["title"], fields["url"], fields["date"])
        else:
            message = f"the source `{name}` must give title, url and date, each as text"
            problems.append(Problem("TW007", "", message, "", child.key))
    return sources, problems


def source_numbers(
    tree: Node, sources: Mapping[str, Source], default: Default | None
) -> tuple[Node, list[Problem]]:
    """The tree with wrapped values unwrapped, each knowing its source.

    With a `default` (a catalog part) every number must have a source or be `assumed`; without (a
    scenario) the other values are the planner's own.
    """
    sourcing = _Sourcing(sources, default or Default(), default is not None, [], [])
    # The root is never a number, whatever its keys are.
    result = sourcing.below(tree) if isinstance(tree, Branch) else sourcing.node(tree)
    return result, sourcing.problems + _unsourced(sourcing.bare)


def ledger(tree: Branch, sections: tuple[KeyPath, ...]) -> dict[str, Sourced]:
    """Every number below the sections by dotted path; what a scenario wrote over a part is what
    its planner assumes."""
    entries: dict[str, Sourced] = {}
    for section in sections:
        child = find(tree, section)
        for path, (_, node) in walk(child.node, section) if child else ():
            if isinstance(node, Leaf) and is_number(node.value):
                own = Sourced(node.value, "assumed", note="written by the planner")
                entries[".".join(path)] = node.known or own
    return entries


@dataclass(frozen=True, slots=True)
class _Sourcing:
    """One pass over a tree."""

    sources: Mapping[str, Source]
    default: Default
    is_part: bool
    problems: list[Problem]
    bare: list[Origin]
    """Numbers of a part that nobody vouches for."""

    def node(self, node: Node) -> Node:
        match node:
            case Leaf():
                return self.leaf(node, self.default) if self.is_part else node
            case Items():
                return Items(tuple(self.node(item) for item in node.nodes), node.origin)
            case Branch(children) if "value" in children and set(children) <= _WRAPPER:
                return self.unwrap(node)
            case Branch():
                return self.below(node)

    def below(self, node: Branch) -> Branch:
        """A section, what is under its keys being sourced."""
        children = {k: Child(c.key, self.node(c.node)) for k, c in node.children.items()}
        return Branch(children, node.origin)

    def unwrap(self, wrapper: Branch) -> Node:
        """The value inside a wrapper; only a scalar can be sourced."""
        value = wrapper.leaf("value")
        if value is None:
            place = wrapper.children["value"].node.origin
            self.refuse(place, "`value` must be one number", "give each number its own source")
            return wrapper.children["value"].node
        if value.value is not None and not is_number(value.value):
            self.refuse(value.origin, "`value` must be a number", "write anything else by itself")
            return value
        written, kind = wrapper.leaf("kind"), self.default.kind
        if written is not None:
            kind = _kind(written)
            if kind is None:
                word = str(written.value)
                message = f"`{word}` says not how a number is known"
                self.refuse(written.origin, message, hint(word, KINDS))
        source = wrapper.leaf("source") or self.default.source
        note = wrapper.leaf("note")
        bounds = self.bounds(wrapper)
        return self.leaf(value, Default(source, kind), bounds, str(note.value) if note else "")

    def leaf(
        self,
        leaf: Leaf,
        said: Default,
        bounds: tuple[Written, Written] | None = None,
        note: str = "",
    ) -> Leaf:
        source = self.source(said.source) if said.source else None
        vouched = said.source is not None and said.kind is not None
        if self.is_part and not vouched and said.kind != "assumed" and is_number(leaf.value):
            self.bare.append(leaf.origin)
        known = Sourced(leaf.value, said.kind or "assumed", source, bounds, note)
        return Leaf(leaf.value, leaf.origin, known)

    def source(self, written: Leaf) -> Source | None:
        source = self.sources.get(str(written.value))
        if source is None:
            word = str(written.value)
            self.refuse(written.origin, f"no source `{word}` is listed", hint(word, self.sources))
        return source

    def bounds(self, wrapper: Branch) -> tuple[Written, Written] | None:
        child = wrapper.children.get("range")
        if child is None:
            return None
        match child.node:
            case Items((Leaf(low), Leaf(high))):
                return low, high
            case _:
                self.refuse(child.node.origin, "`range` takes two numbers", "write [low, high]")
                return None

    def refuse(self, origin: Origin, message: str, hint: str) -> None:
        problem = Problem("TW007", "", message, hint, origin)
        if problem not in self.problems:
            self.problems.append(problem)


def _unsourced(bare: list[Origin]) -> list[Problem]:
    """One problem for all numbers of a part without a source, at the first of them."""
    if not bare:
        return []
    more = f", nor {len(bare) - 1} more here" if len(bare) > 1 else ""
    message = f"this catalog number has no source and kind{more}"
    advice = "begin the file with `source: ID` (listed in sources.yaml) and `kind: " + (
        " | ".join(KINDS) + "`; an assumed number may go without source"
    )
    return [Problem("TW007", "", message, advice, bare[0])]


def _kind(leaf: Leaf) -> Kind | None:
    return next((kind for kind in KINDS if kind == leaf.value), None)


def _texts(node: Node) -> dict[str, str]:
    if not isinstance(node, Branch):
        return {}
    leaves = {key: node.leaf(key) for key in node.children}
    return {k: v.value for k, v in leaves.items() if v and isinstance(v.value, str)}
