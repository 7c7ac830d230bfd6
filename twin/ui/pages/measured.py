"""Measured: a real run beside the open plan's prediction of it: the step, its causes, every action,
and both timelines on one axis."""

from __future__ import annotations

import shlex
from math import floor, log10
from pathlib import Path
from typing import Final

import streamlit as st

from twin.answers import Run, runs_folder
from twin.evidence.measured.compare import StepComparison, compare_steps, joined_trace, sentence
from twin.evidence.measured.figures import (
    action_rows,
    actions,
    both_steps,
    both_timelines,
    chunk_rows,
)
from twin.figures.timeline import played_ns
from twin.reports.numbers import show, signed
from twin.ui import session
from twin.ui.answers import Refusal
from twin.ui.closer import choose_lanes, choose_window
from twin.ui.pictures import place, table, theme
from twin.ui.runs import Happened, happened, runs
from twin.ui.session import widget_key
from twin.ui.view import code, run_or_stop, say_bug, view

_RANKS: Final = 2
"""Ranks of a stage that the timeline shows."""


def page() -> None:
    """Run the page once, top to bottom."""
    st.subheader("How close was the prediction?")
    known = runs()
    if not known:
        _none()
        return
    asked = session.measured()
    name = asked if asked is not None and asked in known else next(iter(known))
    step = _choose(name, list(known))
    found = happened(known[name], step)
    if not isinstance(found, Happened):
        st.error(f"**{name}** cannot be shown.", icon=":material/error:")
        if isinstance(found, Refusal):
            code(found.text)
        else:
            say_bug(found.text)
        return
    answer = run_or_stop(view())
    compared = compare_steps(found.run, found.summary, found.trace, answer.plan, answer.trace)
    _show(found, compared, answer)
    _origin(found, known[name], answer)


def _none() -> None:
    st.info(
        f"No real run is there to show. The trainer writes one into `{runs_folder() / 'train'}` "
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
    st.subheader("Where the step went")
    place(both_steps(compared, theme()), key="both steps")
    st.subheader("Pipeline, measured and predicted")
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


@st.fragment
def _timelines(found: Happened, compared: StepComparison, answer: Run) -> None:
    """Both steps on one axis; moving the window draws nothing else again."""
    both = joined_trace(found.run.layout, found.trace, answer.trace, _RANKS)
    seconds = played_ns(both) / 1e9
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        decimals = max(0, 3 - floor(log10(seconds)))
        window = choose_window(both, decimals, "measured window")
        lanes = choose_lanes("measured lanes")
    place(both_timelines(both, compared, theme(), window, lanes), key="both timelines")
    ranks = found.run.layout.mesh.stage_ranks
    if ranks > _RANKS:
        st.caption(f"Of the {ranks} ranks of each stage, {_RANKS} are shown.")


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


page()
