"""Single parts of the catalog, for whoever lists them or needs one without a scenario."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Generic, Literal, TypeVar, overload

from pydantic import ValidationError

from twin.errors import Problem, ScenarioError
from twin.loading.catalog import (
    PART_SPECS,
    PartKind,
    aliases,
    not_expressible,
    open_library,
    open_name,
    part_file,
    part_names,
    read_part,
    unknown_part,
)
from twin.loading.diagnose import diagnose
from twin.loading.files import display
from twin.loading.sourcing import ledger
from twin.loading.tree import Leaf, plain, replace_at
from twin.sources import Ledger
from twin.spec.base import Spec
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import FabricSpec, GpuSpec, NodeSpec
from twin.spec.cost import PurchaseSpec, SiteSpec
from twin.spec.data import RephrasingRecipe, TrajectoryRecipe
from twin.spec.goodput import FailuresSpec, RestartSpec
from twin.spec.inference import EngineSpec
from twin.spec.model import ModelSpec
from twin.spec.weight_update import UpdaterSpec

WITHIN: Final[Mapping[PartKind, tuple[str, PartKind]]] = MappingProxyType(
    {"nodes": ("gpu", "gpus"), "engines": ("calibration", "calibrations")}
)
"""Parts that name another part: by which key, and of which kind."""
SpecT_co = TypeVar("SpecT_co", bound=Spec, covariant=True)


@dataclass(frozen=True, slots=True)
class Part(Generic[SpecT_co]):
    """One part: its kind and name, the file it was read from, what it says, where its numbers come
    from by dotted path, and its further names."""

    kind: PartKind
    name: str
    file: str
    spec: SpecT_co
    ledger: Ledger
    aliases: tuple[str, ...] = ()


def catalog_parts(kind: PartKind, folders: Iterable[Path] = ()) -> tuple[str, ...]:
    """The names of all parts of a kind, sorted: those under `folders`/catalog, and the shipped."""
    return part_names(open_library(folders)[0], kind)


def unavailable(kind: PartKind, folders: Iterable[Path] = ()) -> dict[str, str]:
    """The parts that published measurements name and the catalog cannot express: name -> why."""
    return not_expressible(open_library(folders)[0], kind)


@overload
def load_part(
    kind: Literal["models"], name: str, folders: Iterable[Path] = ()
) -> Part[ModelSpec]: ...
@overload
def load_part(kind: Literal["gpus"], name: str, folders: Iterable[Path] = ()) -> Part[GpuSpec]: ...
@overload
def load_part(
    kind: Literal["nodes"], name: str, folders: Iterable[Path] = ()
) -> Part[NodeSpec]: ...
@overload
def load_part(
    kind: Literal["fabrics"], name: str, folders: Iterable[Path] = ()
) -> Part[FabricSpec]: ...
@overload
def load_part(
    kind: Literal["calibrations"], name: str, folders: Iterable[Path] = ()
) -> Part[CalibrationSpec]: ...
@overload
def load_part(
    kind: Literal["updaters"], name: str, folders: Iterable[Path] = ()
) -> Part[UpdaterSpec]: ...
@overload
def load_part(
    kind: Literal["prices"], name: str, folders: Iterable[Path] = ()
) -> Part[PurchaseSpec]: ...
@overload
def load_part(
    kind: Literal["sites"], name: str, folders: Iterable[Path] = ()
) -> Part[SiteSpec]: ...
@overload
def load_part(
    kind: Literal["failures"], name: str, folders: Iterable[Path] = ()
) -> Part[FailuresSpec]: ...
@overload
def load_part(
    kind: Literal["restarts"], name: str, folders: Iterable[Path] = ()
) -> Part[RestartSpec]: ...
@overload
def load_part(
    kind: Literal["engines"], name: str, folders: Iterable[Path] = ()
) -> Part[EngineSpec]: ...
@overload
def load_part(
    kind: Literal["rephrasings"], name: str, folders: Iterable[Path] = ()
) -> Part[RephrasingRecipe]: ...
@overload
def load_part(
    kind: Literal["trajectories"], name: str, folders: Iterable[Path] = ()
) -> Part[TrajectoryRecipe]: ...
@overload
def load_part(kind: PartKind, name: str, folders: Iterable[Path] = ()) -> Part[Spec]: ...
def load_part(kind: PartKind, name: str, folders: Iterable[Path] = ()) -> Part[Spec]:
    """A part by its kind and name, or an alias, with the part that it names itself.

    Raises `UsageError` where there is none of that name, `ScenarioError` where it is invalid.
    """
    library, problems = open_library(folders)
    file = part_file(library, kind, name)
    if file is None:
        raise unknown_part(library, kind, name)
    tree, found = read_part(library, kind, name)
    problems += found
    key, of = WITHIN.get(kind, ("", kind))
    child = tree.children.get(key) if tree else None
    if tree and child and isinstance(child.node, Leaf) and child.node.value is not None:
        node, found = open_name(library, of, child.node)
        tree = replace_at(tree, (key,), child._replace(node=node))
        problems += found
    if tree is None or problems:
        raise ScenarioError(problems)
    try:
        spec = PART_SPECS[kind].model_validate(plain(tree))
    except ValidationError as error:
        wrong: list[Problem] = diagnose(error, PART_SPECS[kind], tree)
        raise ScenarioError(wrong) from None
    return Part(kind, file.stem, display(file), spec, ledger(tree, ((),)), aliases(file))
