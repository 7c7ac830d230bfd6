"""Files of the page Explore: points as CSV and Parquet, the command's document as JSON, charts as
HTML, and the equal command.

Points of searches and sweeps on the desk: chosen in a chart or a table, opened as a scenario,
added to the comparison.

Studies of a training step: memory levers, and expert parallelism that stays hidden.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Final, cast

import numpy as np
import streamlit as st

from twin.answers.csv_text import to_csv
from twin.answers.nearest import written
from twin.answers.parquet import Column, to_parquet
from twin.explore.study.hidden import hidden_degrees, memory_levers
from twin.explore.sweep.sweep import WRITERS, Sweep
from twin.figures.palette import BACKGROUND, INK, Theme
from twin.figures.plotly import Picture, javascript, plain
from twin.ui import COMPARE, PLAN, session
from twin.ui.answers import freeing, hiding, studied
from twin.ui.explore.questions import UNITS, SearchResult
from twin.ui.place import OpenPlan, answered, lean, place, ready, show_views, small, theme
from twin.ui.session import widget_key
from twin.ui.workspace import Draft

Columns = Mapping[str, Sequence[Any]]
_FORMATS: Final = {
    ".csv": "Table (CSV)",
    ".json": "Document (JSON)",
    ".parquet": "Table (Parquet)",
}


def columns(found: SearchResult) -> Columns:
    """One column per fact of a point, by name; key figures have the units of their names."""
    spots = found.spots
    made: dict[str, Sequence[Any]] = {
        "gpus": [one.gpus for one in spots],
        "layout": [one.words for one in spots],
        "memory": [one.memory for one in spots],
        "status": [one.status for one in spots],
        "role": [one.role for one in spots],
        "why_not": [one.why for one in spots],
        "headroom_bytes": [one.headroom for one in spots],
        "overrides": [written(dict(one.overrides)) for one in spots],
    }
    return made | {key: [one.kpis.get(key) for one in spots] for key in UNITS}


def as_csv(table: Columns) -> bytes:
    """The table as text with commas, an empty cell where there is no value."""
    return to_csv(table, zip(*table.values(), strict=True)).encode()


def as_parquet(table: Columns, about: Mapping[str, str]) -> bytes:
    """The table as a Parquet file, with the units of key figures."""
    return to_parquet({name: _column(name, values) for name, values in table.items()}, about)


def _column(name: str, values: Sequence[Any]) -> Column:
    about = {"unit": UNITS[name]} if name in UNITS else {}
    if all(isinstance(value, str) for value in values):
        words = list(dict.fromkeys(values))
        return Column(np.array([words.index(one) for one in values], np.int32), about, words)
    missing = np.array([value is None for value in values])
    return Column(np.array([value or 0.0 for value in values], np.float64), about, missing=missing)


def as_html(title: str, command: str, pictures: Sequence[Picture], theme: Theme) -> bytes:
    """A page that needs no network: every chart with its finding, how to read it and its numbers,
    and the command that asks the same."""
    style = (
        "body{font:15px sans-serif;max-width:960px;margin:2em auto;padding:0 1em;"
        f"background:{BACKGROUND[theme]};color:{INK[theme]}}}"
        "td,th{padding:2px 10px 2px 0;text-align:left}"
    )
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        f"<title>{escape(title)}</title><style>{style}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        *(_figure(one, at) for at, one in enumerate(pictures)),
        f"<h2>The same on the command line</h2><pre>{escape(command)}</pre>",
        f"<script>{javascript()}</script><script>",
        *(_drawing(one, at) for at, one in enumerate(pictures)),
        "</script></body></html>\n",
    ]
    return "\n".join(parts).encode()


def _figure(one: Picture, at: int) -> str:
    findings = "<br>".join(map(escape, one.title.splitlines()))
    return (
        f"<h3>{findings}</h3><p>{escape(one.caption)}</p>"
        f'<div id="figure-{at}" role="img" aria-label="{escape(one.alt)}"></div>{_table(one.table)}'
    )


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row.values())}</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _drawing(one: Picture, at: int) -> str:
    data = json.dumps(plain(one.figure), separators=(",", ":")).replace("<", "\\u003c")
    return f"{{const f={data};Plotly.newPlot('figure-{at}',f.data,f.layout,{{responsive:true}});}}"


def files_of(found: SearchResult) -> dict[str, Callable[[], bytes]]:
    """What makes each file of a search, by the end of its name."""
    about = {"twin.goal": found.words, "twin.name": str(found.document.get("name", ""))}
    return {
        ".csv": lambda: as_csv(columns(found)),
        ".json": lambda: as_json(found.document),
        ".parquet": lambda: as_parquet(columns(found), about),
    }


def files_of_sweep(found: Sweep) -> dict[str, Callable[[], bytes]]:
    """What makes each file of a sweep, by the end of its name: as `twin sweep --output` does."""
    return {end: _written(found, end) for end in _FORMATS}


def _written(found: Sweep, end: str) -> Callable[[], bytes]:
    return lambda: WRITERS[end](found)


def as_json(document: Mapping[str, Any]) -> bytes:
    """The document as the command prints it."""
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()


def downloads(
    name: str,
    command: str,
    files: Mapping[str, Callable[[], bytes]],
    pictures: Sequence[Picture],
    theme: Theme,
) -> None:
    """The files, each made when it is asked for, and the command line that asks the same."""
    st.header("Download")
    with st.container(horizontal=True):
        for end, label in _FORMATS.items():
            if end in files:
                st.download_button(label, files[end], f"{name}{end}", on_click="ignore")
        if pictures:
            st.download_button(
                "Charts (HTML)",
                lambda: as_html(name, command, pictures, theme),
                f"{name}.html",
                on_click="ignore",
            )
    st.caption("The same on the command line, once an uploaded file is saved:")
    st.code(command, language=None, wrap_lines=True)


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
        first = st.button("Open as scenario", key=f"open {key}", icon=":material/arrow_forward:")
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


_DEGREES = "Simulate each degree"
_OWN_DEGREE = "windows"
"""The figure of a step that says whether the all-to-all of its own degree hides."""


def levers_section(shown: OpenPlan, scenario: Any) -> None:
    """Single changes of the plan, and the memory that each frees."""
    del scenario
    run = answered(shown)
    if run is None:
        return
    words = "Trying single changes of the plan."
    found = ready(studied(freeing, shown.asked), shown.plan, words)
    if found is not None:
        place(memory_levers(found, run.report.memory, shown.plan.title, theme()), key="levers")


def expert_section(shown: OpenPlan, scenario: Any) -> None:
    """The degrees of expert parallelism whose all-to-all stays hidden; each is a run of its own."""
    if scenario.model.moe is None:
        st.info("The model has no experts.", icon=":material/block:")
        return
    small("Which degrees of expert parallelism hide their all-to-all under kernels?")
    if st.toggle(_DEGREES, key=f"degrees {shown.plan.name}"):
        words = "Simulating the plan at each degree of expert parallelism."
        found = ready(studied(hiding, shown.asked), shown.plan, words)
        if found is not None:
            place(hidden_degrees(found, shown.plan.title, theme()), key="degrees")
    run = answered(shown)
    if run is not None:
        own = [one for one in run.kind.figures(run) if one.key == _OWN_DEGREE]
        show_views([replace(one, heading="At the plan's own degree") for one in own], "expert")
