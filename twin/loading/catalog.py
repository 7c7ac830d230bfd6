"""The catalog: named parts in files, the sources they cite, and what a name in a scenario means.

A part is `catalog/KIND/NAME.yaml`, looked for beside the scenario, then beside the files that it
extends, then among the shipped ones; in any case, and by any of its `aliases`. It may `extends:`
another part of its kind, and says what differs. At the top of a part `source` and `kind` say how
its numbers are known; a single number may say so itself as `{value, source, kind, range, note}`. (A
`kind` that is none of the four words of `twin.sources.Kind` is a field of the part: a topology.)

Single parts of the catalog, for whoever lists them or needs one without a scenario.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, Generic, Literal, TypeVar, get_args, overload

from pydantic import ValidationError

from twin.errors import Origin, Problem, ScenarioError, UsageError
from twin.loading.diagnose import diagnose
from twin.loading.files import display, read_tree, shipped_folder
from twin.loading.sourcing import Default, declared, ledger, read_sources, source_numbers
from twin.loading.tree import (
    Branch,
    Child,
    Items,
    KeyPath,
    Leaf,
    Node,
    hint,
    merge,
    nearest,
    plain,
    replace_at,
)
from twin.sources import Ledger, Source
from twin.spec.axis import unions
from twin.spec.base import Spec
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import FabricSpec, GpuSpec, NodeSpec
from twin.spec.cost import PurchaseSpec, SiteSpec
from twin.spec.data import RephrasingRecipe, TrajectoryRecipe
from twin.spec.goodput import FailuresSpec, RestartSpec
from twin.spec.inference import EngineSpec
from twin.spec.model import ModelSpec
from twin.spec.recipe import RecipeSpec
from twin.spec.serving import ServingSpec
from twin.spec.software import SoftwareSpec
from twin.spec.weight_update import UpdaterSpec

PartKind = Literal[
    "gpus",
    "nodes",
    "fabrics",
    "models",
    "calibrations",
    "software",
    "serving",
    "updaters",
    "recipes",
    "prices",
    "sites",
    "failures",
    "restarts",
    "engines",
    "rephrasings",
    "trajectories",
]
"""A folder of the catalog."""

PART_KINDS: tuple[PartKind, ...] = get_args(PartKind)
PART_SPECS: Mapping[PartKind, type[Spec]] = MappingProxyType(
    {
        "gpus": GpuSpec,
        "nodes": NodeSpec,
        "fabrics": FabricSpec,
        "models": ModelSpec,
        "calibrations": CalibrationSpec,
        "software": SoftwareSpec,
        "serving": ServingSpec,
        "updaters": UpdaterSpec,
        "recipes": RecipeSpec,
        "prices": PurchaseSpec,
        "sites": SiteSpec,
        "failures": FailuresSpec,
        "restarts": RestartSpec,
        "engines": EngineSpec,
        "rephrasings": RephrasingRecipe,
        "trajectories": TrajectoryRecipe,
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
        ("software",): "software",
        ("train", "recipe"): "recipes",
        ("weight_update", "updater"): "updaters",
        ("cost", "purchase"): "prices",
        ("cost", "site"): "sites",
        ("goodput", "failures"): "failures",
        ("goodput", "restart"): "restarts",
        ("data", "model"): "models",
        ("data", "engine"): "engines",
        ("data", "engine", "software"): "serving",
        ("data", "engine", "calibration"): "calibrations",
        ("data", "rephrasing", "recipe"): "rephrasings",
        ("data", "trajectories", "recipe"): "trajectories",
        ("rl", "rollout", "model"): "models",
        ("rl", "rollout", "engine"): "engines",
        ("rl", "rollout", "engine", "software"): "serving",
        ("rl", "rollout", "engine", "calibration"): "calibrations",
        ("rl", "rollout", "prefill", "engine"): "engines",
        ("rl", "rollout", "prefill", "engine", "software"): "serving",
        ("rl", "rollout", "prefill", "engine", "calibration"): "calibrations",
        ("rl", "iteration", "update", "updater"): "updaters",
    }
)
"""Where a scenario may name a part, outer places first."""


@dataclass(frozen=True, slots=True)
class Library:
    """Catalog folders in the order of search, and the sources that their parts may cite."""

    folders: tuple[Path, ...]
    sources: Mapping[str, Source]
    files: dict[PartKind, dict[str, Path]] = field(
        default_factory=dict["PartKind", dict[str, Path]], compare=False
    )
    """The file of every part by its name, of each kind that was asked for."""


def open_library(near: Iterable[Path] = ()) -> tuple[Library, list[Problem]]:
    """The catalogs in the folders `near`, then the shipped one; and what is wrong with their
    lists of sources, of which the nearest wins."""
    known: dict[Path, Path] = {}
    for folder in (*near, shipped_folder()):
        if (folder / "catalog").is_dir():
            known.setdefault((folder / "catalog").absolute(), folder / "catalog")
    folders = [*known.values()]
    sources: dict[str, Source] = {}
    problems: list[Problem] = []
    for folder in reversed(folders):
        path = folder / "sources.yaml"
        if path.is_file():
            found, wrong = _sources(path, path.stat().st_mtime_ns, display(path))
            sources |= found
            problems += wrong
    return Library(tuple(folders), sources), problems


@lru_cache(maxsize=8)
def _sources(
    path: Path, changed: int, shown: str
) -> tuple[Mapping[str, Source], tuple[Problem, ...]]:
    """The sources in a file as it was when it last `changed`: whoever lists a shelf would read it
    for each part. Problems name the file as it is `shown` from the current folder."""
    del changed, shown
    found, wrong = read_sources(path)
    return MappingProxyType(found), tuple(wrong)


def part_names(library: Library, kind: PartKind) -> tuple[str, ...]:
    """The names of all parts of a kind, sorted."""
    return tuple(_files(library, kind))


def part_file(library: Library, kind: PartKind, name: str) -> Path | None:
    """The file of a part, by its name, by its name in another case, or by an alias; the first one
    in the order of search."""
    files = _files(library, kind)
    folded = {stem.lower(): path for stem, path in reversed(files.items())}
    wanted = name.lower()
    found = files.get(name) or folded.get(wanted)
    if found is not None:
        return found
    # A file that does not hold the word cannot have the alias, and most need not be parsed.
    holding = (path for path in files.values() if wanted in _text(path).lower())
    return next((path for path in holding if wanted in map(str.lower, aliases(path))), None)


def aliases(part: Path) -> tuple[str, ...]:
    """The further names of the part in a file."""
    if "aliases" not in _text(part):
        return ()
    tree, _ = read_tree(part)
    child = tree.children.get("aliases") if tree else None
    nodes = child.node.nodes if child and isinstance(child.node, Items) else ()
    return tuple(str(node.value) for node in nodes if isinstance(node, Leaf))


def read_part(
    library: Library, kind: PartKind, name: str, arrival: Origin | None = None
) -> tuple[Branch | None, list[Problem]]:
    """The tree of a part, its numbers sourced, and what is wrong with it."""
    path = part_file(library, kind, name)
    if path is None:
        return None, [_no_part(library, kind, name, arrival)]
    return _read(library, kind, path, arrival, ())


def _read(
    library: Library,
    kind: PartKind,
    path: Path,
    arrival: Origin | None,
    descendants: tuple[Path, ...],
) -> tuple[Branch | None, list[Problem]]:
    """The tree of the part in a file, over that of the part that it extends."""
    tree, problems = read_tree(path, arrival, "extends" if descendants else "names")
    if tree is None:
        return None, problems
    default, own = _declared_by_part(tree)
    if "name" not in own.children:
        named = Child(tree.origin, Leaf(path.stem, tree.origin))
        own = Branch({"name": named, **own.children}, own.origin)
    sourced, wrong = source_numbers(own, library.sources, default)
    assert isinstance(sourced, Branch)
    problems += [*_wrong_aliases(tree), *wrong]
    parent = tree.leaf("extends")
    if parent is None:
        return sourced, problems
    base, wrong = _base(library, kind, parent, (*descendants, path))
    if base is None:
        return None, [*problems, *wrong]
    whole = merge(base, sourced, lambda _, leaf: leaf, unions(PART_SPECS[kind]))
    assert isinstance(whole, Branch)
    return whole, [*problems, *wrong]


def _base(
    library: Library, kind: PartKind, parent: Leaf, lineage: tuple[Path, ...]
) -> tuple[Branch | None, list[Problem]]:
    """The tree of a part that another one extends."""
    path = part_file(library, kind, str(parent.value))
    if path is None:
        return None, [_no_part(library, kind, str(parent.value), parent.origin)]
    if path in lineage:
        names = " -> ".join(part.stem for part in (*lineage, path))
        message = f"these parts extend each other: {names}"
        return None, [Problem("TW004", "extends", message, "remove one of them", parent.origin)]
    return _read(library, kind, path, parent.origin, lineage)


def _wrong_aliases(tree: Branch) -> list[Problem]:
    child = tree.children.get("aliases")
    if child is None or (
        isinstance(child.node, Items)
        and all(isinstance(node, Leaf) and isinstance(node.value, str) for node in child.node.nodes)
    ):
        return []
    message = "`aliases` takes a list of names"
    return [Problem("TW005", "aliases", message, "write [NAME, NAME]", child.node.origin)]


def _no_part(library: Library, kind: PartKind, name: str, origin: Origin | None = None) -> Problem:
    """That there is no part of a name, with the nearest one that there is."""
    why = not_expressible(library, kind).get(name.lower())
    if why is not None:
        message = f"`{name}` cannot be expressed: {why}"
        return Problem("TW040", "", message, "no entry comes close; leave it out", origin)
    message = f"there is no `{name}` among the {kind} of the catalog"
    further = [alias for path in _files(library, kind).values() for alias in aliases(path)]
    names = part_names(library, kind)
    near = nearest(name, names) or nearest(name, further)
    fix = f"did you mean `{near}`?" if near else hint(name, names)
    return Problem("TW006", "", message, fix, origin)


def not_expressible(library: Library, kind: PartKind) -> dict[str, str]:
    """The parts that are known and cannot be expressed, with the reason, by name."""
    found: dict[str, str] = {}
    for folder in library.folders:
        path = folder / "not_expressible.yaml"
        tree, _ = read_tree(path) if path.is_file() else (None, [])
        child = tree.children.get(kind) if tree else None
        if child and isinstance(child.node, Branch):
            found |= {name: str(plain(entry.node)) for name, entry in child.node.children.items()}
    return found


def _files(library: Library, kind: PartKind) -> dict[str, Path]:
    """The file of every part by its name."""
    if kind not in library.files:
        files = {
            path.stem: path
            for folder in reversed(library.folders)
            for path in folder.glob(f"{kind}/*.yaml")
            if path.is_file()
        }
        library.files[kind] = dict(sorted(files.items()))
    return library.files[kind]


def _text(path: Path) -> str:
    """What a file says; one that cannot be read is told so by who needs it."""
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError:
        return ""


def open_name(library: Library, kind: PartKind, leaf: Leaf) -> tuple[Branch | Leaf, list[Problem]]:
    """The part that a written name stands for; the leaf itself where it is no name of a part."""
    if not isinstance(leaf.value, str):
        return leaf, []
    tree, problems = read_part(library, kind, leaf.value, leaf.origin)
    return tree or leaf, problems


def unknown_part(library: Library, kind: PartKind, name: str) -> UsageError:
    """What a command raises that was asked for a part that does not exist."""
    return UsageError([_no_part(library, kind, name)])


def _declared_by_part(tree: Branch) -> tuple[Default, Branch]:
    """What the part says about all its numbers, and the part without what is about itself."""
    default = declared(tree)
    about = ("source", "aliases", "extends")
    said = (*about, "kind") if default.kind is not None else about
    kept: dict[str, Child] = {k: c for k, c in tree.children.items() if k not in said}
    return default, Branch(kept, tree.origin)


def is_a_file(value: object) -> bool:
    """Whether what stands at an axis names a file, and no member."""
    return isinstance(value, str) and Path(value).suffix in (".yaml", ".yml", ".json")


def open_axis(axis: Leaf) -> tuple[Node, list[Problem]]:
    """A member of an axis from its bare name, `gpipe` being `{kind: gpipe}`; or from the file that
    holds it, which lies beside the file that names it, or in the current folder."""
    if not isinstance(axis.value, str):
        return axis, []
    if not is_a_file(axis.value):
        return Branch({"kind": Child(axis.origin, axis)}, axis.origin), []
    beside = Path(axis.origin.file).parent / axis.value
    tree, problems = read_tree(
        beside if beside.is_file() else Path(axis.value), axis.origin, "names"
    )
    return tree or axis, problems


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


def unavailable(kind: PartKind) -> dict[str, str]:
    """The parts that published measurements name and the catalog cannot express: name -> why."""
    return not_expressible(open_library()[0], kind)


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
    kind: Literal["software"], name: str, folders: Iterable[Path] = ()
) -> Part[SoftwareSpec]: ...
@overload
def load_part(
    kind: Literal["serving"], name: str, folders: Iterable[Path] = ()
) -> Part[ServingSpec]: ...
@overload
def load_part(
    kind: Literal["updaters"], name: str, folders: Iterable[Path] = ()
) -> Part[UpdaterSpec]: ...
@overload
def load_part(
    kind: Literal["recipes"], name: str, folders: Iterable[Path] = ()
) -> Part[RecipeSpec]: ...
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


@cache
def stacks_of(gpu: str) -> tuple[str, ...]:
    """The shipped software stacks that have a calibration for a GPU, by its name; sorted."""
    library, _ = open_library(())
    return tuple(one for one in catalog_parts("software") if gpu in _calibrated(library, one))


def _calibrated(library: Library, stack: str) -> Iterable[str]:
    """The GPUs of which a software stack has a calibration; the tree says it, and is read in a
    tenth of the time of the whole part."""
    tree, _ = read_part(library, "software", stack)
    child = tree.children.get("calibrations") if tree else None
    return child.node.children if child and isinstance(child.node, Branch) else ()
