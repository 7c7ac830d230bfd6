"""Profiler trace: where the steps of profiled ranks went, beside the open plan's prediction."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, Final

import streamlit as st

from twin.answers import Run
from twin.evidence.traces.answer import TraceAnswer, layer_table
from twin.evidence.traces.figures import beside_prediction
from twin.reports.breakdown import mean
from twin.reports.table import duration, signed
from twin.ui import session
from twin.ui.answers import command
from twin.ui.explore.questions import explored
from twin.ui.place import (
    OpenPlan,
    answered,
    blocks,
    open_plan,
    place,
    ready,
    step_view,
    table,
    theme,
)
from twin.ui.trace_reading import traces

_MOST: Final = 500
"""Megabytes of a file that a browser may send; the command line reads larger ones."""
_FILES: Final = 16
"""Ranks at once."""
_HOW: Final = """\
few = torch.profiler.schedule(wait=2, warmup=1, active=3)
with torch.profiler.profile(schedule=few) as profiler:
    for batch in batches:
        train_step(batch)
        profiler.step()
profiler.export_chrome_trace(f"rank-{rank}.json.gz")
"""


def trace_section() -> None:
    """Traces that the visitor brings, and what they say."""
    _bring()
    brought = session.traces()
    if brought is None:
        st.markdown(
            "A trace shows how much of a step is compute, exposed communication, waiting for the "
            "host, and bubble. The open plan's prediction stands beside it."
        )
        with st.expander("Write a trace", icon=":material/code:", expanded=True):
            st.code(_HOW, language=None, wrap_lines=True)
        return
    names, shown = brought.names, step_view(open_plan())
    if brought.left_out:
        st.warning(
            f"The first {len(names)} files are read; {brought.left_out} more are left out.",
            icon=":material/warning:",
        )
    asked = (brought.folder, names, shown.asked)
    words = f"Reading {_listed(names)}."
    wrong = "This cannot be read as a profiler's trace."
    found = ready(explored(traces, asked, asked), shown.plan, words, wrong=wrong)
    if found is not None:
        _show(found, shown, names)


def _bring() -> None:
    before = session.traces()
    key = f"traces {0 if before is None else before.turn}"
    st.file_uploader(
        "Upload profiler traces (PyTorch or Chakra, also gzipped), one file per rank",
        accept_multiple_files=True,
        key=key,
        on_change=_take,
        args=(key,),
        max_upload_size=_MOST,
        help=f"Up to {_FILES} ranks. The command `twin measured TRACE... SCENARIO` reads traces of "
        "several gigabytes.",
    )


def _take(key: str) -> None:
    """Keep what was sent, in the place of what was there."""
    files: list[Any] = st.session_state[key] or []
    if files:
        session.bring_traces([(one.name, one.getbuffer()) for one in files], _FILES)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(f"`{one}`" for one in names[:2]) + more


def _show(found: TraceAnswer, shown: OpenPlan, names: Sequence[str]) -> None:
    """What the traces say, then the prediction beside it."""
    for trouble in found.troubles:
        st.warning(trouble, icon=":material/warning:")
    for sentence in found.sentences:
        st.markdown(sentence)
    layers = found.layers and layer_table(found.layers)
    if layers:
        st.header(layers.heads[0])
        table([{"Kernels": row.pop(layers.heads[0])} | row for row in layers.records()])
    st.header("Where the step time goes")
    run = answered(shown)
    if run is not None:
        _compare(found, run)
    blocks([one for one in found.tables if not layers or one.heads != layers.heads])
    st.header("Provenance")
    first, many = found.ranks[0], len(found.ranks)
    said = f"{_listed(names)}: {many:,} {'rank' if many == 1 else 'ranks'}"
    said += f" of {first.of:,}" if first.of else ""
    st.caption(said + (f" on {first.gpu}" if first.gpu else ""))
    scenario = shlex.split(command(shown.asked))[2:]
    words = shlex.join(["twin", "measured", *names, *scenario])
    st.code(words, language=None, wrap_lines=True)


def _compare(found: TraceAnswer, run: Run) -> None:
    predicted = mean(run.trace.breakdown_ns, run.trace.ranks)
    if found.step is not None:
        took, said = sum(found.row.values()) / 1e9, run.trace.step_ns / 1e9
        off = f"{signed(100 * (said / took - 1))} % of measured"
        with st.container(horizontal=True, gap="medium"):
            st.metric("Measured step", duration(took), width=180)
            st.metric("Predicted step", duration(said), off, "off", width=180)
    place(beside_prediction(found, predicted, theme()), key="trace beside prediction")
