"""Sweep: one or two fields over values, and a key figure of every point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, cast

import streamlit as st

from twin.answers.nearest import written
from twin.errors import TwinError
from twin.explore.sweep.sweep import Sweep, SweepRow
from twin.figures.cost import SweepMark, one_field, two_fields
from twin.figures.plotly import Picture
from twin.kinds.base import Kind, kind_of
from twin.reports import resolved
from twin.reports.table import ranged
from twin.spec.kpis import Kpi
from twin.ui.editor import at
from twin.ui.explore import work
from twin.ui.explore.exports import (
    Choosable,
    chooser,
    downloads,
    files_of_sweep,
    from_chart,
    from_table,
)
from twin.ui.explore.questions import (
    STATUS,
    SweepAsked,
    explored,
    known,
    left_or_over,
    problem,
    short,
)
from twin.ui.place import OpenPlan, grid, place, ready, small, theme

_WANTED: Final = "explore sweep"
_SAID: Final = 3
"""Key figures that are shown of a point."""
_KEY: Final = "explore swept"
_TABLE: Final = "explore sweep table"
_SHORT: Final = ("step", "weight_update")
"""Kinds of which three points take seconds."""
_FIRST: Final = ("parallel.pipeline", "cluster.nodes")
"""The field that is offered first, where the scenario has it."""


def sweep_section(shown: OpenPlan, scenario: Any) -> None:
    """The fields with their values, the sweep, and its points."""
    asked = _form(shown, scenario)
    wrong = "" if asked is None else _wrong(asked)
    if wrong:
        st.error(wrong, icon=":material/error:")
    st.button(
        "Sweep",
        icon=":material/grid_on:",
        disabled=asked is None or bool(wrong),
        on_click=lambda: st.session_state.update({_WANTED: asked}),
    )
    wanted: SweepAsked | None = st.session_state.get(_WANTED)
    if wanted is None or wanted.plan != shown.asked:
        kept = known(work.swept, asked) if asked is not None else None
        wanted = asked if kept is not None and kept.future.done() else None
    if wanted is None and asked is not None and not wrong and _is_short(asked, scenario):
        small("An example. Name your own fields and values, then press Sweep.")
        wanted = asked
    if wanted is None:
        st.info("Name a field and its values, then press Sweep.", icon=":material/grid_on:")
        return
    _answer(shown, scenario, wanted)


def _is_short(asked: SweepAsked, scenario: Any) -> bool:
    """Whether a sweep is that which the page offers, and takes seconds."""
    kind = kind_of(scenario)
    first = next((path for path in _FIRST if path in _paths(resolved(scenario), "")), None)
    offered = first and (f"{first}={_around(scenario, first)}",)
    return asked.axes == offered and kind.name in _SHORT


def _form(shown: OpenPlan, scenario: Any) -> SweepAsked | None:
    """What the fields ask for; None where nothing is named."""
    plan = shown.plan.name
    said = getattr(scenario, "sweep", None)
    own = said is not None and st.toggle(
        "The scenario's own sweep",
        value=True,
        key=f"explore own|{plan}",
        persist_state="session",
        help="What the section `sweep:` of the file says.",
    )
    axes: list[str] = []
    if not own:
        paths = list(_paths(resolved(scenario), ""))
        first = next((path for path in _FIRST if path in paths), None)
        for place_, usual in enumerate((first, None)):
            axis = _axis(plan, place_, usual, paths, scenario)
            if axis:
                axes.append(axis)
    if not axes and not own:
        return None
    fidelity = "events" if kind_of(scenario).name == "step" else "whole"
    return SweepAsked(shown.asked, tuple(axes), fidelity)


def _axis(plan: str, at: int, usual: str | None, paths: list[str], scenario: Any) -> str:
    """One field with its values, as `--grid` takes it; empty where none is named."""
    named = ("Field", "Second field, if any")[at]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        path = st.selectbox(
            named,
            paths,
            index=None if usual is None else paths.index(usual),
            key=f"explore field {at}|{plan}",
            persist_state="session",
            placeholder="None",
            accept_new_options=True,
            width=320,
        )
        if path is None:
            return ""
        values = st.text_input(
            "Values",
            _around(scenario, path) if usual else "",
            key=f"explore values {at}|{plan}|{path}",
            persist_state="session",
            placeholder=_example(scenario, path),
            help="`8, 16` or a range: `4..32:x2` doubles, `10..50:10` adds.",
            width=320,
        )
    return f"{path}={values.strip()}"


def _around(scenario: Any, path: str) -> str:
    """Half, once and twice the value of a count."""
    own = int(_value(scenario, path))
    return ", ".join(str(one) for one in sorted({max(1, own // 2), own, 2 * own}))


def _example(scenario: Any, path: str) -> str:
    return f"now {written(_value(scenario, path))}"


def _value(scenario: Any, path: str) -> Any:
    return at(resolved(scenario), path)


def _paths(section: Mapping[str, Any], above: str) -> Iterator[str]:
    """Dotted paths of all fields that hold one value."""
    for key, value in section.items():
        path = f"{above}.{key}" if above else key
        if isinstance(value, dict):
            yield from _paths(cast("Mapping[str, Any]", value), path)
        elif above and not isinstance(value, list):
            yield path


@lru_cache(64)
def _wrong(asked: SweepAsked) -> str:
    """What is wrong with the axes, in one line; empty where nothing is."""

    def check() -> None:
        with work.source_of(asked.plan, asked.axes) as source:
            work.grid_asked(source, source.load({}), asked.axes)

    try:
        return problem(check)[1]
    except (TwinError, ValueError) as error:
        return str(error)


def _answer(shown: OpenPlan, scenario: Any, wanted: SweepAsked) -> None:
    words = "Sweeping: every point is computed."
    found = ready(explored(work.swept, wanted), shown.plan, words)
    if found is None:
        st.caption("Results are kept: a stopped sweep goes on from there.")
        return
    kind = kind_of(scenario)
    kpis = {kpi.label: kpi for kpi in kind.kpis}
    known_figures = [
        label
        for label, kpi in kpis.items()
        if any(row.outcome.kpis.get(kpi.key) is not None for row in found.rows)
    ]
    if not known_figures:
        st.warning("No point can run: the table says why.", icon=":material/block:")
        _points(found, kind)
        return
    usual = next(kpi.label for kpi in kind.kpis if kpi.key == kind.length)
    label = st.selectbox("Key figure", known_figures, known_figures.index(usual), width=320)
    picture = _picture(found, kpis[label])
    if picture is not None:
        place(picture, "explore sweep chart", from_chart("explore sweep chart", _KEY))
    _points(found, kind)
    pictures = [picture] if picture is not None else []
    downloads(f"{scenario.name} sweep", wanted.command, files_of_sweep(found), pictures, theme())


def _picture(found: Sweep, kpi: Kpi) -> Picture | None:
    """The chart of a sweep of one or two fields; None where points vary more: the table has all."""
    fields = found.fields
    answers = [_answered(row, fields, kpi) for row in found.rows]
    if len(fields) == 1:
        return one_field(answers, fields[0], kpi, theme())
    if len(fields) == 2:
        return two_fields(answers, (fields[0], fields[1]), kpi, theme())
    st.caption(f"{len(fields)} fields vary, more than a chart shows: the table has every point.")
    return None


def _answered(row: SweepRow, fields: tuple[str, ...], kpi: Kpi) -> SweepMark:
    outcome = row.outcome
    figure = outcome.kpis.get(kpi.key)
    values = tuple(written(row.values[path]) if path in row.values else "" for path in fields)
    return SweepMark(
        values,
        figure,
        ranged(figure, outcome.intervals.get(kpi.key), kpi.unit) if figure is not None else "",
        outcome.status == "fits",
        f"{outcome.code} {outcome.reason}".strip(),
        _name(row),
    )


def _name(row: SweepRow) -> str:
    """What a point is called: its values."""
    return ", ".join(f"{path.rpartition('.')[2]} {written(v)}" for path, v in row.values.items())


def _points(found: Sweep, kind: Kind) -> None:
    """All points as a table, and one of them in full, with the way to its scenario."""
    names = [_name(row) for row in found.rows]
    points = [
        Choosable(name, row.values, (f"**{name}**", *_said(row, kind)))
        for name, row in zip(names, found.rows, strict=True)
    ]
    chooser(points, _KEY)
    st.header("Every point")
    best = set(found.frontier)
    rows = [_cells(row, kind, best=place in best) for place, row in enumerate(found.rows)]
    words = "Every point of the sweep, with its figures or why it cannot run"
    grid(rows, _TABLE, words, from_table(_TABLE, _KEY, names))


def _said(row: SweepRow, kind: Kind) -> tuple[str, ...]:
    outcome = row.outcome
    lines = [f"It {'fits' if outcome.status == 'fits' else 'is ' + STATUS[outcome.status]}"]
    if outcome.kpis:
        known = {kpi.key: kpi for kpi in kind.kpis}
        keys = [key for key in kind.headline if outcome.kpis.get(key) is not None][:_SAID]
        figures = ", ".join(
            ranged(outcome.kpis[key], outcome.intervals.get(key), known[key].unit) for key in keys
        )
        lines.append(figures)
    reason = f"{outcome.code} {outcome.reason}".strip()
    why = "; ".join(part for part in (reason, outcome.hint) if part)
    return (*lines, f"Why not: {why}") if why else tuple(lines)


def _cells(row: SweepRow, kind: Kind, *, best: bool) -> dict[str, object]:
    outcome = row.outcome
    values = {path: written(value) for path, value in row.values.items()}
    figures = {
        kpi.label: short(outcome.kpis.get(kpi.key)) for kpi in kind.kpis if kpi.key in outcome.kpis
    }
    headroom = outcome.headroom_bytes
    first = [kpi.label for kpi in kind.kpis if kpi.key in kind.headline and kpi.label in figures]
    return {
        **values,
        "Fits": STATUS[outcome.status],
        **{label: figures.pop(label) for label in first},
        "Memory left": "" if headroom is None else left_or_over(headroom),
        "Pareto-optimal": "yes" if best else "",
        "Why not": f"{outcome.code} {outcome.reason}".strip(),
        **figures,
    }
