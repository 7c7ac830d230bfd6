"""`twin catalog`: what is built in, and where its numbers come from."""

from __future__ import annotations

from typing import Any, cast

from twin.cli.catalog_entries import (
    choice_document,
    kernel_lines,
    members_of,
    part_document,
    part_tables,
    summary,
)
from twin.cli.output import Output
from twin.errors import Problem, UsageError
from twin.loading import catalog_parts, load_part, unavailable
from twin.loading.catalog import PartKind
from twin.loading.suggest import hint
from twin.spec.calibration import CalibrationSpec

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
CATEGORIES = (*PARTS, *CHOICES)
"""What the catalog holds: parts in files, and the members of the axes of choice."""


def catalog(*, category: str | None, name: str | None, output: Output) -> int | None:
    """What is built in, and its sources."""
    if category is None:
        _everything(output)
    elif category in PARTS:
        _parts(category, name, output)
    elif category in CHOICES:
        _choices(category, name, output)
    else:
        _refuse(category, f"the catalog has no category `{category}`", CATEGORIES)


def _refuse(word: str, message: str, known: tuple[str, ...]) -> None:
    """Say that there is no such thing, and what is nearest to it."""

    raise UsageError([Problem("TW006", "", message, hint(word, known))])


def _everything(output: Output) -> None:
    """The names in every category."""

    names: dict[str, list[str]] = {
        **{kind: list(catalog_parts(kind)) for kind in PARTS},
        **{axis: list(members_of(axis)) for axis in CHOICES},
    }
    output.document({"version": VERSION, "catalog": names})
    for kind, entries in names.items():
        output.sentence(f"{kind}: {', '.join(entries)}")
    output.sentence(
        "twin catalog CATEGORY lists one; twin catalog CATEGORY NAME shows its sources."
    )


def _parts(kind: PartKind, name: str | None, output: Output) -> None:
    """All parts of a kind, or one of them with the source of each number."""

    names = catalog_parts(kind) if name is None else (name,)
    parts = [load_part(kind, entry) for entry in names]
    lacking = unavailable(kind) if name is None else {}
    document: dict[str, Any] = {"version": VERSION, kind: [part_document(part) for part in parts]}
    if name is None:
        rows = [{"name": entry, "reason": why} for entry, why in lacking.items()]
        document["not_expressible"] = rows
    output.document(document)
    if name is not None:
        output.sentence(f"{parts[0].name}, from {parts[0].file}")
        if output.tables:
            output.show(*part_tables(parts[0]))
            if kind == "calibrations":
                for line in kernel_lines(cast("CalibrationSpec", parts[0].spec)):
                    output.sentence(line)
        return
    for part in parts:
        output.sentence(summary(part))
    for entry, why in lacking.items():
        output.sentence(f"not expressible, {entry}: {why}")


def _choices(category: str, name: str | None, output: Output) -> None:
    """The members of an axis with what each is and what it can be told."""

    known = members_of(category)
    if name is not None and name not in known:
        _refuse(name, f"there is no `{name}` among the {category} of the catalog", tuple(known))
    shown = {kind: member for kind, member in known.items() if name in (None, kind)}
    entries = [choice_document(kind, member) for kind, member in shown.items()]
    output.document({"version": VERSION, category: entries})
    for entry in entries:
        output.sentence(f"{entry['kind']}: {entry['summary']}")
        for setting in entry["settings"]:
            default = "..." if setting["required"] else setting["default"]
            output.sentence(f"  {setting['name']} = {default}: {setting['meaning']}")
