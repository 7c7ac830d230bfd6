"""Weight update: how long new weights take from host memory to the inference engines, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import streamlit as st

from twin.kinds.weight_update.figures import link_use, pipelines, rounds, timeline
from twin.kinds.weight_update.report import UpdateReport
from twin.kinds.weight_update.verdict import decimal, verdict
from twin.loading import load_any
from twin.reports.numbers import gibibytes, show
from twin.scenario import UpdateScenario
from twin.spec.kpis import UPDATE_KPIS
from twin.ui import session
from twin.ui.desk import Draft
from twin.ui.editor import FIELD
from twin.ui.fields import as_text
from twin.ui.parts import say_verdict, warnings
from twin.ui.pictures import place, theme
from twin.ui.session import widget_key
from twin.ui.updates import Update, answer
from twin.ui.view import refuse

_CHOICES: Final = {
    "weight_update.event": ("Event", ("update", "start", "recover")),
    "weight_update.method": ("Method", ("broadcast", "p2p")),
    "weight_update.stages": ("Stages", ("two", "three")),
}
_TEXTS: Final = {
    "cluster.nodes": "Nodes",
    "weight_update.replica.gpus": "GPUs of an instance",
    "weight_update.free_memory": "Free device memory",
    "weight_update.bucket": "Bucket, at most",
    "weight_update.updater.nics": "NICs per broadcast",
    "weight_update.updater.per_tensor": "Host time per tensor",
    "cluster.node.host.pcie.bandwidth": "PCIe link of a GPU",
    "weight_update.storage": "Storage",
}
"""What decides an update, by path."""
_FIGURES: Final = {
    "update_seconds": "Update",
    "gather_seconds": "Gathering metadata",
    "bytes_per_second": "Rate",
    "peak_device_bytes": "Device memory",
    "peak_host_bytes_per_node": "Host memory of a node",
}


def page() -> None:
    """Run the page once, top to bottom."""
    known = session.the_known()
    st.subheader("How long do new weights take to the inference engines?")
    shown = session.update()
    if shown is None:
        st.info("This app knows no weight update.", icon=":material/search_off:")
        return
    with st.sidebar:
        _choose(shown, list(known.updates))
    _fields(shown, known.updates[shown.scenario])
    found = answer(known.updates[shown.scenario], shown.sets, known.stamp)
    if isinstance(found, Update):
        _show(found)
    else:
        refuse("This update cannot happen as written.", found)
    with st.sidebar:
        _changes(shown)


def _choose(shown: Draft, names: list[str]) -> None:
    """Which weight update is shown."""
    key = widget_key("weight update shown", shown.scenario)
    st.selectbox(
        "Weight update",
        names,
        names.index(shown.scenario),
        key=key,
        on_change=lambda: session.show_update(Draft(st.session_state[key], st.session_state[key])),
    )


def _changes(shown: Draft) -> None:
    """Every edit against the scenario, with the way back."""
    if not shown.edits:
        st.caption(f"Nothing is changed against {shown.scenario}.")
        return
    st.markdown(f"**Changed against {shown.scenario}**")
    st.markdown("  \n".join(f"`{text}`" for text in shown.sets))
    st.button(
        "Reset all",
        icon=":material/restart_alt:",
        on_click=lambda: session.show_update(shown.reset),
    )


def _show(found: Update) -> None:
    report = found.report
    with st.sidebar:
        _side(report)
    say_verdict(verdict(report), fits=report.fits)
    _facts(report)
    st.subheader("Where the update goes")
    place(timeline(report, found.program, found.trace, theme()), key="update timeline")
    st.subheader("Two stages or three, all or what is needed")
    place(pipelines(found.others, theme()), key="pipelines")
    st.subheader("Links")
    place(link_use(report, theme()), key="update links")
    st.subheader("Before you trust these numbers")
    warnings(report.warnings)
    st.subheader("Provenance")
    origin = report.provenance
    st.caption(
        f"Scenario hash `{report.hash[:12]}`, twin {origin.twin_version}, updater "
        f"{origin.details['updater']}, {origin.events:,} events"
    )
    if origin.reproduce is not None:
        st.code(origin.reproduce, language="shell")


def _side(report: UpdateReport) -> None:
    """The verdict in a word, and the figures that decide."""
    if report.fits:
        st.badge("Fits", icon=":material/check_circle:", color="green")
    else:
        st.badge("Does not fit", icon=":material/block:", color="red")
    for kpi in UPDATE_KPIS:
        if kpi.key in _FIGURES:
            st.metric(_FIGURES[kpi.key], show(report.kpis[kpi.key], kpi.unit))


def _facts(report: UpdateReport) -> None:
    travel = report.travel
    st.caption(
        f"{decimal(travel.checkpoint_bytes)} in {travel.tensors:,} tensors; "
        f"{travel.buckets:,} buckets in {rounds(report)}; {travel.buffers} buffers of "
        f"{gibibytes(travel.buffer_bytes)}; each GPU receives {gibibytes(travel.received_bytes)} "
        f"and keeps {gibibytes(travel.held_bytes)}"
    )


def _fields(shown: Draft, file: str) -> None:
    """What decides an update, each field with what the scenario or an edit says."""
    before = load_any(file)
    assert isinstance(before, UpdateScenario), "only weight updates are offered"
    values, edits = before.model_dump(mode="json", by_alias=True), dict(shown.edits)
    with st.container(border=True):
        with st.container(horizontal=True, gap="medium"):
            for path, (label, options) in _CHOICES.items():
                was = _at(values, path)
                now = edits.get(path, was)
                key = widget_key(f"{shown.scenario}|{path}", now)
                st.segmented_control(
                    label,
                    options,
                    default=now if now in options else was,
                    required=True,
                    key=key,
                    on_change=_edit,
                    args=(path, key, was),
                    width="content",
                )
        with st.container(horizontal=True, vertical_alignment="bottom"):
            for path, label in _TEXTS.items():
                was = _at(values, path)
                now = edits.get(path, was)
                key = widget_key(f"{shown.scenario}|{path}", now)
                st.text_input(
                    label,
                    now,
                    key=key,
                    help=f"`{path}`",
                    on_change=_edit,
                    args=(path, key, was),
                    width=FIELD,
                )


def _edit(path: str, key: str, was: str) -> None:
    """Make an edit of what the widget now says; none where that is what the scenario says."""
    shown, now = session.update(), str(st.session_state[key]).strip()
    assert shown is not None, "a field belongs to an update"
    session.show_update(shown.without(path) if now in ("", was) else shown.edited(path, now))


def _at(values: Mapping[str, Any], path: str) -> str:
    """The value at a path as it would be typed; empty where there is none."""
    found: Any = values
    for key in path.split("."):
        found = cast(Mapping[str, Any], found)[key]
    if isinstance(found, Mapping):
        rows = cast(Mapping[str, Any], found).items()
        return f"{{{', '.join(f'{key}: {as_text(one)}' for key, one in rows)}}}"
    return "" if found is None else as_text(found)


page()
