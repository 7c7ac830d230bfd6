"""The catalog as tables: parts with their numbers and sources, and the members of the axes of
choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast

from twin.arch import parameters
from twin.loading import Part
from twin.loading.catalog import PART_KINDS, SLOTS, PartKind
from twin.optimizers import Optimizer
from twin.reports.numbers import count
from twin.routing import Routing
from twin.schedules import Schedule
from twin.sources import Ledger, Sourced
from twin.spec.axis import members
from twin.spec.base import Spec
from twin.spec.model import ModelSpec
from twin.ui.fields import as_text, label

Choice = Literal["schedules", "optimizers", "routings"]
Shelf = PartKind | Choice
"""A shelf of the catalog."""
CHOICES: Final[Mapping[Choice, Mapping[str, type[Spec]]]] = {
    "schedules": members("twin.schedules", Schedule),
    "optimizers": members("twin.optimizers", Optimizer),
    "routings": members("twin.routing", Routing),
}
TITLES: Final[Mapping[Shelf, str]] = {kind: label((kind,)) for kind in (*PART_KINDS, *CHOICES)}
"""The shelves in words."""
_FIELD: Final = {
    "schedules": "parallel.schedule.kind",
    "optimizers": "train.optimizer.kind",
    "routings": "train.routing.kind",
}
_UNCOUNTED: Final = ("name", "reserve")
"""What the overview of parts leaves to the list of numbers."""


def field_of(shelf: Shelf) -> str:
    """The field of a scenario that takes an entry of a shelf; the outermost of several."""
    slots = {kind: ".".join(path) for path, kind in reversed([*SLOTS.items()])}
    return _FIELD.get(shelf) or slots[cast(PartKind, shelf)]


def part_rows(parts: Sequence[Part[Spec]]) -> list[dict[str, str]]:
    """A row per part: its fields as a planner writes them; models with their parameters."""
    return [
        {"Name": part.name, **_counts(part.spec), **_values(part.spec.model_dump(mode="json"), "")}
        for part in parts
    ]


def number_rows(ledger: Ledger) -> list[dict[str, str]]:
    """Every number of a part with who says so."""
    return [{"Number": path, **known_as(known)} for path, known in ledger.items()]


def known_as(known: Sourced) -> dict[str, str]:
    """How a number is known, as columns."""
    low, high = known.range or (None, None)
    return {
        "Value": str(known.value),
        "Range": f"{low} to {high}" if known.range else "",
        "Kind": known.kind,
        "Source": f"{known.source.title}, {known.source.date}" if known.source else "",
        "Link": known.source.url if known.source else "",
        "Note": known.note,
    }


def choice_rows(shelf: Choice) -> list[dict[str, str]]:
    """A row per member of an axis, with what it says of itself."""
    return [
        {"Name": kind, "What it is": " ".join((member.__doc__ or "").split())}
        for kind, member in CHOICES[shelf].items()
    ]


def settings(shelf: Choice, kind: str) -> list[dict[str, str]]:
    """What can be set on a member of an axis."""
    return [
        {
            "Setting": f"`{name}`",
            "Default": "required" if field.is_required() else as_text(field.default),
            "What it means": field.description or "",
        }
        for name, field in CHOICES[shelf][kind].model_fields.items()
        if name != "kind"
    ]


def _counts(spec: Spec) -> dict[str, str]:
    if not isinstance(spec, ModelSpec):
        return {}
    found = parameters(spec)
    return {"Parameters": count(found.total), "Activated": count(found.activated_with_head)}


def _values(values: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Leaves by name; a part inside a part goes by its name."""
    found: dict[str, str] = {}
    for key, value in values.items():
        name = label((prefix, key))
        if key in _UNCOUNTED or value is None:
            continue
        if isinstance(value, Mapping):
            inner = cast(Mapping[str, Any], value)
            found |= {name: str(inner["name"])} if "name" in inner else _values(inner, f"{name} ")
        else:
            found[name] = as_text(value)
    return found
