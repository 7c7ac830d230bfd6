"""The catalog: named parts in files, the sources they cite, and what a name in a scenario means.

A part is `catalog/KIND/NAME.yaml`, looked for beside the scenario, then beside the files that it
extends, then among the shipped ones. At the top of a part `source` and `kind` say how its numbers
are known; a single number may say so itself as `{value, source, kind, range, note}`. (A `kind`
that is none of the four words of `twin.sources.Kind` is a field of the part: a topology.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

from twin.errors import Origin, Problem, UsageError
from twin.loading.files import read_tree, shipped_folder
from twin.loading.sourcing import Default, declared, read_sources, source_numbers
from twin.loading.suggest import hint
from twin.loading.tree import Branch, Child, KeyPath, Leaf, Node
from twin.sources import Source
from twin.spec.base import Spec
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import FabricSpec, GpuSpec, NodeSpec
from twin.spec.model import ModelSpec

PartKind = Literal["gpus", "nodes", "fabrics", "models", "calibrations"]
"""A folder of the catalog."""

PART_KINDS: tuple[PartKind, ...] = get_args(PartKind)
PART_SPECS: Mapping[PartKind, type[Spec]] = MappingProxyType(
    {
        "gpus": GpuSpec,
        "nodes": NodeSpec,
        "fabrics": FabricSpec,
        "models": ModelSpec,
        "calibrations": CalibrationSpec,
    }
)
"""What the file of a part must hold."""

SLOTS: Mapping[KeyPath, PartKind] = MappingProxyType(
    {
        ("model",): "models",
        ("cluster", "node"): "nodes",
        ("cluster", "node", "gpu"): "gpus",
        ("cluster", "fabric"): "fabrics",
        ("calibration",): "calibrations",
    }
)
"""Where a scenario may name a part, outer places first."""


@dataclass(frozen=True, slots=True)
class Library:
    """Catalog folders in the order of search, and the sources that their parts may cite."""

    folders: tuple[Path, ...]
    sources: Mapping[str, Source]


def open_library(near: Iterable[Path] = ()) -> tuple[Library, list[Problem]]:
    """The catalogs in the folders `near`, then the shipped one; and what is wrong with their
    lists of sources, of which the nearest wins."""
    folders = list(
        dict.fromkeys(
            folder / "catalog"
            for folder in (*near, shipped_folder())
            if (folder / "catalog").is_dir()
        )
    )
    sources: dict[str, Source] = {}
    problems: list[Problem] = []
    for folder in reversed(folders):
        if (folder / "sources.yaml").is_file():
            found, wrong = read_sources(folder / "sources.yaml")
            sources |= found
            problems += wrong
    return Library(tuple(folders), sources), problems


def part_names(library: Library, kind: PartKind) -> tuple[str, ...]:
    """The names of all parts of a kind, sorted."""
    return tuple(
        sorted(
            {
                path.stem
                for folder in library.folders
                for path in folder.glob(f"{kind}/*.yaml")
                if path.is_file()
            }
        )
    )


def part_file(library: Library, kind: PartKind, name: str) -> Path | None:
    """The file of a part: the first one in the order of search."""
    if name not in part_names(library, kind):
        return None
    files = (folder / kind / f"{name}.yaml" for folder in library.folders)
    return next(path for path in files if path.is_file())


def read_part(
    library: Library, kind: PartKind, name: str, arrival: Origin | None = None
) -> tuple[Branch | None, list[Problem]]:
    """The tree of a part, its numbers sourced, and what is wrong with it."""
    path = part_file(library, kind, name)
    if path is None:
        names = part_names(library, kind)
        message = f"there is no `{name}` among the {kind} of the catalog"
        return None, [Problem("TW006", "", message, hint(name, names), arrival)]
    tree, problems = read_tree(path, arrival, "names")
    if tree is None:
        return None, problems
    default, own = _declared_by_part(tree)
    if "name" not in own.children:
        named = Child(tree.origin, Leaf(name, tree.origin))
        own = Branch({"name": named, **own.children}, own.origin)
    sourced, wrong = source_numbers(own, library.sources, default)
    assert isinstance(sourced, Branch)
    return sourced, [*problems, *wrong]


def open_name(library: Library, kind: PartKind, leaf: Leaf) -> tuple[Branch | Leaf, list[Problem]]:
    """The part that a written name stands for; the leaf itself where it is no name of a part."""
    if not isinstance(leaf.value, str):
        return leaf, []
    tree, problems = read_part(library, kind, leaf.value, leaf.origin)
    return tree or leaf, problems


def unknown_part(kind: PartKind, name: str, names: Sequence[str]) -> UsageError:
    """What a command raises that was asked for a part that does not exist."""
    message = f"there is no `{name}` among the {kind} of the catalog"
    return UsageError([Problem("TW006", "", message, hint(name, names))])


def _declared_by_part(tree: Branch) -> tuple[Default, Branch]:
    """What the part says about all its numbers, and the part without that."""
    default = declared(tree)
    said = ("source", "kind") if default.kind is not None else ("source",)
    kept: dict[str, Child] = {k: c for k, c in tree.children.items() if k not in said}
    return default, Branch(kept, tree.origin)


def as_kind(axis: Leaf) -> Node:
    """A member of an axis from its bare name: `gpipe` is `{kind: gpipe}`."""
    if not isinstance(axis.value, str):
        return axis
    return Branch({"kind": Child(axis.origin, axis)}, axis.origin)
