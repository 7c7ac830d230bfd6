"""Points of searches and sweeps on the desk: chosen in a chart or a table, opened as a scenario,
added to the comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import streamlit as st

from twin.answers.variants import written
from twin.ui import COMPARE, PLAN, session
from twin.ui.open_plan import lean
from twin.ui.session import widget_key
from twin.ui.workspace import Draft

_LONGEST: Final = 80
"""Letters of a plan's name."""


@dataclass(frozen=True, slots=True)
class Choosable:
    """A point that may be opened: its name, what the plan has otherwise there, and what is said of
    it, a line each."""

    name: str
    overrides: Mapping[str, Any]
    words: tuple[str, ...]


def draft_of(plan: Draft, point: Choosable) -> Draft:
    """The plan with the values of a point; edits below a section that it replaces go."""
    for path, value in point.overrides.items():
        plan = plan.edited(path, written(value), forget=path)
    return replace(plan, name=f"{plan.scenario}, {point.name}"[:_LONGEST])


def open_or_add(point: Choosable, key: str) -> None:
    """The two buttons of a point. Both put it on the desk beside the open plan."""
    with st.container(horizontal=True):
        first = st.button(
            "Open as scenario", key=f"open {key}", icon=":material/arrow_forward:", type="primary"
        )
        second = st.button("Add to the comparison", key=f"add {key}", icon=":material/add:")
    if first or second:
        draft = lean(draft_of(session.workspace().open, point))
        session.change(lambda on: on.added(draft, show=first))
        st.switch_page(PLAN if first else COMPARE)


def chooser(points: Sequence[Choosable], key: str) -> None:
    """One point at a time, with all that is said of it, and the way to its scenario; what was
    clicked in the chart or the table is chosen."""
    names = {one.name: one for one in points}
    if not names:
        return
    shown = st.session_state.get(chosen_key(key))
    shown = shown if shown in names else next(iter(names))
    box = widget_key(f"{key} point", shown, names)
    st.selectbox(
        "One point: click a mark or a row, or choose here",
        list(names),
        list(names).index(shown),
        key=box,
        on_change=lambda: st.session_state.update({chosen_key(key): st.session_state[box]}),
    )
    with st.container(border=True):
        st.markdown("  \n".join(names[shown].words).replace("$", r"\$"))
        open_or_add(names[shown], key)


def chosen_key(key: str) -> str:
    """Where the session keeps the name of the point that is chosen."""
    return f"{key} chosen"


def from_chart(chart: str, key: str) -> Callable[[], None]:
    """Chooses the point whose mark was clicked in a chart."""

    def chosen() -> None:
        state = cast("dict[str, Any]", st.session_state.get(chart) or {})
        marks: list[dict[str, Any]] = state.get("selection", {}).get("points", [])
        for mark in marks:
            if mark.get("customdata"):
                st.session_state[chosen_key(key)] = mark["customdata"][0]

    return chosen


def from_table(table: str, key: str, names: Sequence[str]) -> Callable[[], None]:
    """Chooses the point whose row was chosen in a table."""

    def chosen() -> None:
        state = cast("dict[str, Any]", st.session_state.get(table) or {})
        rows: list[int] = state.get("selection", {}).get("rows", [])
        for row in rows:
            if row < len(names):
                st.session_state[chosen_key(key)] = names[row]

    return chosen
