"""Any section from a YAML file of its own: what it extends, the catalog parts that it names, and
`--set` overrides, with the place of every mistake.

A scenario is more than its sections (sources, calibrations, axes); `twin.loading.load` reads it.
This is for programs beside the simulator whose settings are a `Spec`, such as a trainer's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from pydantic import ValidationError

from twin.errors import Problem, ScenarioError
from twin.loading.catalog import PartKind, open_library, open_name
from twin.loading.diagnose import diagnose
from twin.loading.files import Family, read_family
from twin.loading.overrides import read_overrides
from twin.loading.tree import Branch, Child, KeyPath, Leaf, Node, find, merge, plain, replace_at
from twin.spec.axis import unions
from twin.spec.base import Spec

SpecT = TypeVar("SpecT", bound=Spec)

_NO_PARTS: Mapping[KeyPath, PartKind] = MappingProxyType({})


def load_config(
    root: type[SpecT],
    file: Path,
    overrides: Sequence[str] = (),
    parts: Mapping[KeyPath, PartKind] = _NO_PARTS,
) -> SpecT:
    """The section that a file holds, under `a.b=value` overrides; at the paths `parts` a name
    stands for a part of the catalog.

    Raises `UsageError` where an override is none, and `ScenarioError` with all that is wrong.
    """
    over = read_overrides(overrides)
    family = read_family(file)
    trees = family.trees(file)
    if not trees:
        raise ScenarioError(family.problems)
    library, problems = open_library(family.folders)
    problems = [*family.problems, *problems]
    lost: list[KeyPath] = []

    def opened(path: KeyPath, leaf: Leaf) -> Node:
        if path not in parts:
            return leaf
        node, wrong = open_name(library, parts[path], leaf)
        problems.extend(wrong)
        if wrong:
            lost.append(path)
        return node

    tree: Node = Branch({}, trees[-1].origin)
    for layer in (*trees, *over):
        tree = merge(tree, layer, opened, unions(root))
    assert isinstance(tree, Branch)
    for path in parts:
        child = find(tree, path)
        if child is not None and isinstance(child.node, Leaf) and path not in lost:
            tree = replace_at(tree, path, Child(child.key, opened(path, child.node)))
    return _validated(root, tree, problems, lost, family)


def _validated(
    root: type[SpecT],
    tree: Branch,
    problems: list[Problem],
    lost: Sequence[KeyPath],
    family: Family,
) -> SpecT:
    try:
        spec = root.model_validate(plain(tree))
    except ValidationError as error:
        problems += [
            problem
            for problem in diagnose(error, root, tree)
            if not _follows(problem, lost, complete=family.complete)
        ]
    else:
        if not problems:
            return spec
    raise ScenarioError(dict.fromkeys(problems))


def _follows(problem: Problem, lost: Sequence[KeyPath], *, complete: bool) -> bool:
    """True for what is only wrong because a part or a file could not be read."""
    path = tuple(problem.path.split("."))
    inside = any(path[: len(section)] == section for section in lost)
    return inside or (problem.code == "TW011" and not complete)
