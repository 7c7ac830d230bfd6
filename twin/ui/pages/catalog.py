"""Catalog: what is built in, where each number comes from, and one click to use it."""

from __future__ import annotations

import streamlit as st

from twin.loading import catalog_parts, load_part
from twin.loading.catalog import PART_KINDS, PartKind
from twin.scenario import Scenario
from twin.ui import session
from twin.ui.answers import scenario_of
from twin.ui.pictures import grid, table
from twin.ui.places import PLAN
from twin.ui.shelves import (
    CHOICES,
    TITLES,
    Choice,
    Shelf,
    choice_rows,
    field_of,
    number_rows,
    part_rows,
    settings,
)
from twin.ui.view import lean, view


def page() -> None:
    """Run the page once, top to bottom."""
    shelf: Shelf = st.segmented_control(
        "Shelf",
        list(TITLES),
        default="gpus",
        required=True,
        format_func=TITLES.__getitem__,
        key="shelf",
    )
    for kind in PART_KINDS:
        if kind == shelf:
            _parts(kind)
    for choice in CHOICES:
        if choice == shelf:
            _choices(choice)


def _parts(shelf: PartKind) -> None:
    """The parts of a kind side by side, then one of them with its sources."""
    names = catalog_parts(shelf)
    parts = [load_part(shelf, name) for name in names]
    grid(part_rows(parts), key=f"parts {shelf}", words=f"All {shelf} of the catalog")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name: str = st.selectbox("Show the sources of", names, key=f"part of {shelf}", width=420)
        _use(shelf, name)
    (part,) = (one for one in parts if one.name == name)
    st.caption(f"From `{part.file}`")
    grid(number_rows(part.ledger), key=f"numbers {shelf}", words=f"Every number of {name}")


def _choices(shelf: Choice) -> None:
    """The members of an axis, and what can be set on each."""
    table(choice_rows(shelf))
    names = [row["Name"] for row in choice_rows(shelf)]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name: str = st.selectbox("Settings of", names, key=f"choice of {shelf}", width=420)
        _use(shelf, name)
    rows = settings(shelf, name)
    if rows:
        table(rows)
    else:
        st.caption("It has nothing to set.")


def _use(shelf: Shelf, name: str) -> None:
    """Put the entry into the open plan, or into the weight update that is shown."""
    if shelf == "updaters":
        _use_in_update(field_of(shelf), name)
        return
    shown, path = view(), field_of(shelf)
    valid = isinstance(scenario_of(shown.asked), Scenario)
    if st.button(
        f"Use in {shown.plan.title}",
        icon=":material/add:",
        on_click=_edit,
        args=(path, name),
        disabled=not valid,
        help=f"Sets `{path}`",
    ):
        st.switch_page(PLAN)


def _use_in_update(path: str, name: str) -> None:
    update = session.update()
    if update is not None:
        st.button(
            f"Use in {update.title}",
            icon=":material/add:",
            on_click=lambda: session.open_update(update.edited(path, name)),
            help=f"Sets `{path}`",
        )


def _edit(path: str, name: str) -> None:
    forget = path.rpartition(".")[0] if path.endswith(".kind") else ""
    session.change(lambda on: on.changed(lambda plan: lean(plan.edited(path, name, forget=forget))))


page()
