"""The catalog: parts with their numbers and sources, and the members of the axes of choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast

import streamlit as st

from twin.arch.count import parameters
from twin.loading import Part, catalog_parts, load_part
from twin.loading.catalog import PART_KINDS, SLOTS, PartKind
from twin.optimizers.base import Optimizer
from twin.reports.numbers import count
from twin.routing import Routing
from twin.schedules.base import Schedule
from twin.sources import Ledger, Sourced
from twin.spec.axis import members
from twin.spec.base import Spec
from twin.spec.model import ModelSpec
from twin.ui import PLAN, session
from twin.ui.answers import Failure, scenario_of
from twin.ui.fields import as_text, label
from twin.ui.open_plan import lean, open_plan
from twin.ui.place import grid, table

Choice = Literal["schedules", "optimizers", "routings"]
Category = PartKind | Choice
"""A category of the catalog."""
CHOICES: Final[Mapping[Choice, Mapping[str, type[Spec]]]] = {
    "schedules": members("twin.schedules", Schedule),
    "optimizers": members("twin.optimizers", Optimizer),
    "routings": members("twin.routing", Routing),
}
TITLES: Final[Mapping[Category, str]] = {kind: label((kind,)) for kind in (*PART_KINDS, *CHOICES)}
"""The categories in words."""
_FIELD: Final = {
    "schedules": "parallel.schedule.kind",
    "optimizers": "train.optimizer.kind",
    "routings": "train.routing.kind",
}
_UNCOUNTED: Final = ("name", "reserve")
"""What the overview of parts leaves to the list of numbers."""


def field_of(category: Category) -> str:
    """The field of a scenario that takes an entry of a category; the outermost of several."""
    slots = {kind: ".".join(path) for path, kind in reversed([*SLOTS.items()])}
    return _FIELD.get(category) or slots[cast(PartKind, category)]


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


def choice_rows(category: Choice) -> list[dict[str, str]]:
    """A row per member of an axis, with what it says of itself."""
    return [
        {"Name": kind, "What it is": " ".join((member.__doc__ or "").split())}
        for kind, member in CHOICES[category].items()
    ]


def settings(category: Choice, kind: str) -> list[dict[str, str]]:
    """What can be set on a member of an axis."""
    return [
        {
            "Setting": f"`{name}`",
            "Default": "required" if field.is_required() else as_text(field.default),
            "What it means": field.description or "",
        }
        for name, field in CHOICES[category][kind].model_fields.items()
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


def catalog_section() -> None:
    """The parts of a category, and a button to use one."""
    category: Category = st.segmented_control(
        "Category",
        list(TITLES),
        default="gpus",
        required=True,
        format_func=TITLES.__getitem__,
        key="category",
    )
    for kind in PART_KINDS:
        if kind == category:
            _parts(kind)
    for choice in CHOICES:
        if choice == category:
            _choices(choice)


def _parts(category: PartKind) -> None:
    """The parts of a kind side by side, then one of them with its sources."""
    names = catalog_parts(category)
    parts = [load_part(category, name) for name in names]
    grid(part_rows(parts), key=f"parts {category}", words=f"All {category} of the catalog")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name: str = st.selectbox("Sources of", names, key=f"part of {category}", width=420)
        _use(category, name)
    (part,) = (one for one in parts if one.name == name)
    st.caption(f"From `{part.file}`")
    grid(number_rows(part.ledger), key=f"numbers {category}", words=f"{name}: all parameters")


def _choices(category: Choice) -> None:
    """The members of an axis, and what can be set on each."""
    table(choice_rows(category))
    names = [row["Name"] for row in choice_rows(category)]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name: str = st.selectbox("Settings of", names, key=f"choice of {category}", width=420)
        _use(category, name)
    rows = settings(category, name)
    if rows:
        table(rows)
    else:
        st.caption("It has nothing to set.")


def _use(category: Category, name: str) -> None:
    """Put the entry into the open plan, where its scenario has such a field."""
    shown, path = open_plan(), field_of(category)
    scenario = scenario_of(shown.asked)
    fits = not isinstance(scenario, Failure) and path.partition(".")[0] in dict(scenario)
    if st.button(
        f"Use in {shown.plan.title}",
        icon=":material/add:",
        on_click=_edit,
        args=(path, name),
        disabled=not fits,
        help=f"Sets `{path}`" if fits else f"The open plan has no `{path}`",
    ):
        session.want_section("Scenario")
        st.switch_page(PLAN)


def _edit(path: str, name: str) -> None:
    forget = path.rpartition(".")[0] if path.endswith(".kind") else ""
    session.change(lambda on: on.changed(lambda plan: lean(plan.edited(path, name, forget=forget))))
