"""`twin catalog`: what is built in, and where its numbers come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from twin.cli.options import JsonOption, QuietOption
from twin.cli.output import Output

if TYPE_CHECKING:
    from twin.loading import Part
    from twin.loading.catalog import PartKind
    from twin.spec.base import Spec
    from twin.spec.calibration import CalibrationSpec
    from twin.spec.model import ModelSpec

VERSION = 1
"""Version of the JSON document."""

PARTS = (
    "gpus",
    "nodes",
    "fabrics",
    "models",
    "calibrations",
    "updaters",
    "prices",
    "sites",
    "failures",
    "restarts",
    "engines",
    "rephrasings",
    "trajectories",
)
CHOICES = ("schedules", "optimizers", "routings", "topologies")
SHELVES = (*PARTS, *CHOICES)
"""What the catalog holds: parts in files, and the members of the axes of choice."""

_ShelfArgument = Annotated[
    str | None, typer.Argument(metavar="SHELF", help=f"One of: {', '.join(SHELVES)}.")
]
_NameArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="One entry, with the source of each number.")
]


def catalog(
    shelf: _ShelfArgument = None,
    name: _NameArgument = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """What is built in, and its sources.

    Lists the shelves, one shelf, or one entry with the source of each number. Models come with
    exact parameter counts.
    """
    output = Output(as_json, quiet)
    if shelf is None:
        _everything(output)
    elif shelf in PARTS:
        _parts(shelf, name, output)
    elif shelf in CHOICES:
        _choices(shelf, name, output)
    else:
        _refuse(shelf, f"the catalog has no shelf `{shelf}`", SHELVES)


def _refuse(word: str, message: str, known: tuple[str, ...]) -> None:
    """Say that there is no such thing, and what is nearest to it."""
    from twin.errors import Problem, UsageError
    from twin.loading.suggest import hint

    raise UsageError([Problem("TW006", "", message, hint(word, known))])


def _everything(output: Output) -> None:
    """The names on every shelf."""
    from twin.loading import catalog_parts

    names: dict[str, list[str]] = {
        **{kind: list(catalog_parts(kind)) for kind in PARTS},
        **{shelf: list(members_of(shelf)) for shelf in CHOICES},
    }
    output.document({"version": VERSION, "catalog": names})
    for kind, entries in names.items():
        output.sentence(f"{kind}: {', '.join(entries)}")
    output.sentence("twin catalog SHELF lists a shelf; twin catalog SHELF NAME shows its sources.")


def _parts(kind: PartKind, name: str | None, output: Output) -> None:
    """All parts of a kind, or one of them with the source of each number."""
    from twin.cli import shelves
    from twin.loading import catalog_parts, load_part, unavailable

    names = catalog_parts(kind) if name is None else (name,)
    parts = [load_part(kind, one) for one in names]
    lacking = unavailable(kind) if name is None else {}
    document: dict[str, Any] = {"version": VERSION, kind: [part_document(part) for part in parts]}
    if name is None:
        rows = [{"name": one, "reason": why} for one, why in lacking.items()]
        document["not_expressible"] = rows
    output.document(document)
    if name is not None:
        output.sentence(f"{parts[0].name}, from {parts[0].file}")
        if output.tables:
            output.show(*shelves.part_tables(parts[0]))
            for line in _kernel_lines(parts[0]):
                output.sentence(line)
        return
    for part in parts:
        output.sentence(shelves.summary(part))
    for one, why in lacking.items():
        output.sentence(f"not expressible, {one}: {why}")


def part_document(part: Part[Spec]) -> dict[str, Any]:
    """A part as data: values as a planner writes them, and the source of every number by path."""
    return {
        "name": part.name,
        "aliases": list(part.aliases),
        "file": part.file,
        "values": part.spec.model_dump(mode="json", by_alias=True),
        "numbers": {path: asdict(entry) for path, entry in part.ledger.items()},
        **({"parameters": counts(cast("ModelSpec", part.spec))} if part.kind == "models" else {}),
        **({"kernels": _kernel_rows(part)} if part.kind == "calibrations" else {}),
    }


def _kernel_lines(part: Part[Spec]) -> Iterator[str]:
    """What a profile gives for the kernels that were measured; nothing for any other part."""
    if part.kind == "calibrations":
        from twin.cli.kernel_rows import lines

        yield from lines(cast("CalibrationSpec", part.spec))


def _kernel_rows(part: Part[Spec]) -> list[dict[str, Any]]:
    """The measured kernels of a profile as data."""
    from twin.cli.kernel_rows import rows

    return rows(cast("CalibrationSpec", part.spec))


def counts(model: ModelSpec) -> dict[str, int]:
    """Exact parameter counts of a model, `total` and the activated ones first."""
    from twin.arch.count import parameters

    found = parameters(model)
    return {
        "total": found.total,
        "activated_without_embeddings": found.activated_without_embeddings,
        "activated_with_head": found.activated_with_head,
        "activated_with_embeddings": found.activated_with_embeddings,
        **asdict(found),
    }


def members_of(shelf: str) -> Mapping[str, type[Any]]:
    """The choices of an axis by kind."""
    from twin.network import topology
    from twin.optimizers.base import Optimizer
    from twin.routing import Routing
    from twin.schedules import Schedule
    from twin.spec.axis import members

    if shelf == "topologies":
        return {kind: type(topology.member(kind)) for kind in topology.kinds()}
    axes: dict[str, tuple[str, type[Any]]] = {
        "schedules": ("twin.schedules", Schedule),
        "optimizers": ("twin.optimizers", Optimizer),
        "routings": ("twin.routing", Routing),
    }
    return members(*axes[shelf])


def _choices(shelf: str, name: str | None, output: Output) -> None:
    """The members of an axis with what each is and what it can be told."""
    known = members_of(shelf)
    if name is not None and name not in known:
        _refuse(name, f"there is no `{name}` among the {shelf} of the catalog", tuple(known))
    shown = {kind: member for kind, member in known.items() if name in (None, kind)}
    entries = [choice_document(kind, member) for kind, member in shown.items()]
    output.document({"version": VERSION, shelf: entries})
    for entry in entries:
        output.sentence(f"{entry['kind']}: {entry['summary']}")
        for setting in entry["settings"]:
            default = "..." if setting["required"] else setting["default"]
            output.sentence(f"  {setting['name']} = {default}: {setting['meaning']}")


def choice_document(kind: str, member: type[Any]) -> dict[str, Any]:
    """A member of an axis as data: its first sentence, and the settings it can be given."""
    from twin.spec.base import Spec

    fields = member.model_fields if issubclass(member, Spec) else {}
    settings = [
        {
            "name": name,
            "required": field.is_required(),
            "default": None if field.is_required() else field.get_default(),
            "meaning": field.description or "",
        }
        for name, field in fields.items()
        if name != "kind"
    ]
    summary = (member.__doc__ or "").strip().splitlines()[0]
    return {"kind": kind, "summary": summary, "settings": settings}
