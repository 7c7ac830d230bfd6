"""Real run: a measured step beside the open plan's prediction: causes, actions and timelines."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import streamlit as st

from twin.answers import Run, runs_folder
from twin.engine.trace import Trace
from twin.evidence.measured.compare import StepComparison, compare_steps, joined_trace, sentence
from twin.evidence.measured.figures import (
    action_rows,
    actions,
    both_steps,
    both_timelines,
    chunk_rows,
)
from twin.evidence.measured.run_folder import MeasuredRun, is_run, read, runs_in, stamp
from twin.evidence.measured.step import trace
from twin.evidence.measured.summary import RunSummary, summary
from twin.figures.timeline import LANES, played_ns, start_window
from twin.figures.view import Control, View
from twin.reports.numbers import show, signed
from twin.ui import session
from twin.ui.answers import Failure, guarded
from twin.ui.open_plan import answered, open_plan, say_failure, step_view
from twin.ui.place import place, show_views, table, theme
from twin.ui.scenarios import command_line
from twin.ui.session import widget_key

_KEPT: Final = 8
"""Runs kept in memory."""
_RANKS: Final = 2
"""Ranks of a stage that the timeline shows."""


def real_section() -> None:
    """A real run beside the prediction of the open plan."""
    known = runs()
    if not known:
        _none()
        return
    asked = session.measured()
    name = asked if asked is not None and asked in known else next(iter(known))
    step = _choose(name, list(known))
    found = happened(known[name], step)
    if not isinstance(found, Happened):
        say_failure(f"**{name}** cannot be shown.", found)
        return
    answer = answered(step_view(open_plan()))
    if answer is None:
        return
    compared = compare_steps(found.run, found.summary, found.trace, answer.plan, answer.trace)
    _show(found, compared, answer)
    _origin(found, known[name], answer)


def _none() -> None:
    st.info(
        f"There is no real run to show. The trainer writes one into `{runs_folder() / 'train'}` "
        "when it runs on several ranks; `twin ui SCENARIO --measured RUN` opens one from anywhere.",
        icon=":material/search_off:",
    )


def _choose(name: str, names: list[str]) -> int | None:
    """Which run is shown, and which step of it."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        key = widget_key("measured run shown", name, names)
        st.selectbox(
            "Run",
            names,
            names.index(name),
            key=key,
            on_change=lambda: session.show_measured(st.session_state[key]),
            width=320,
        )
        return st.number_input(
            "Step",
            min_value=0,
            value=None,
            placeholder="the median one",
            key=f"measured step {name}",
            width=200,
        )


def _show(found: Happened, compared: StepComparison, answer: Run) -> None:
    if compared.mismatches:
        st.warning(
            "**The open plan is not the plan of this run**, so the difference says little: "
            f"{'; '.join(compared.mismatches)}.",
            icon=":material/balance:",
        )
    st.markdown(sentence(found.summary, found.trace, compared))
    _figures(compared)
    st.subheader("Where the step time goes")
    place(both_steps(compared, theme()), key="both steps")
    _timelines(found, compared, answer)
    st.subheader("Action by action")
    place(actions(compared, theme()), key="action errors")
    table(action_rows(compared.actions))
    rows = chunk_rows(compared.actions)
    if rows:
        with st.expander("Chunk by chunk", icon=":material/list:"):
            table(rows)


def _figures(compared: StepComparison) -> None:
    mine, other = compared.measured_row, compared.predicted_row
    took, said = compared.measured_ns, compared.predicted_ns
    off = f"{signed(100 * compared.step_error)} % of measured"
    with st.container(horizontal=True, gap="medium"):
        st.metric("Measured step", show(took / 1e9, "s"), width=180)
        st.metric("Predicted step", show(said / 1e9, "s"), off, "off", width=180)
        for label, cause in (("Bubble", "bubble"), ("Compute", "compute")):
            share = show(mine[cause] / took, "%")
            st.metric(
                f"{label}, measured", share, f"predicted {show(other[cause] / said, '%')}", "off"
            )


def _timelines(found: Happened, compared: StepComparison, answer: Run) -> None:
    """Both steps on one axis."""
    both = joined_trace(found.run.layout, found.trace, answer.trace, _RANKS)
    window = Control(
        "window",
        "Window to look at, in seconds",
        "window",
        start_window(both),
        end_ns=played_ns(both),
    )
    lanes = Control("lanes", "Lanes", "choice", "compute", LANES)
    view = View(
        "",
        "Pipeline, measured and predicted",
        "both timelines",
        lambda theme, chosen: both_timelines(both, compared, theme, **chosen),
        (window, lanes),
    )
    show_views([view], found.run.name)
    ranks = found.run.layout.mesh.stage_ranks
    if ranks > _RANKS:
        st.caption(f"{_RANKS} of the {ranks} ranks of each stage are shown.")


def _origin(found: Happened, folder: Path, answer: Run) -> None:
    st.subheader("Provenance")
    header, steps = found.run.header, found.summary
    st.caption(
        f"{header.model} on {header.ranks} ranks, written {header.created or 'at unknown time'}; "
        f"step {steps.step}, {found.trace.events:,} spans; {len(steps.counted)} steps counted, "
        f"{len(steps.warm_up)} before them taken for warm-up"
    )
    scenario = shlex.split(answer.report.provenance.reproduce or "")[2:]
    st.code(shlex.join(["twin", "measured", str(folder), *scenario]), language="shell")


@dataclass(frozen=True, slots=True)
class Happened:
    """A real run, the step of it that is shown, and that step as a trace."""

    run: MeasuredRun
    summary: RunSummary
    trace: Trace


def runs() -> Mapping[str, Path]:
    """The real runs of this app by name: those that it was opened with, then the newest first."""
    asked = [Path(one) for one in command_line() if is_run(one)]
    known: dict[str, Path] = {}
    for one in (*asked, *runs_in(runs_folder() / "train")):
        name = one.absolute().name
        known.setdefault(name if known.get(name, one) == one else str(one), one)
    return known


def happened(folder: Path, step: int | None) -> Happened | Failure:
    """A step of a run, as its files stand now; None: the median one."""
    return guarded(lambda: _happened(folder, step, stamp(folder)))


@lru_cache(_KEPT)
def _read(folder: Path, as_of: int) -> MeasuredRun:
    del as_of
    return read(folder)


@lru_cache(_KEPT)
def _happened(folder: Path, step: int | None, as_of: int) -> Happened:
    run = _read(folder, as_of)
    found = summary(run, step)
    return Happened(run, found, trace(run, found.step))
