"""What leaves the app: a desk that another machine can open, and the open plan as files."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import streamlit as st

from twin.answers import Run
from twin.interop.export.base import format_of, stamp
from twin.loading import resolve
from twin.scenario import Scenario
from twin.ui.answers import scenario_of
from twin.ui.desk import Desk
from twin.ui.known import Known, shared_text
from twin.ui.view import View

_FORMATS: Final = {
    "html": "Report (HTML)",
    "perfetto": "Timeline (Perfetto)",
    "csv": "Tables (CSV)",
}
"""The formats that planners hand on; the command `twin export` has all of them."""


def portable(desk: Desk, known: Known) -> Desk:
    """The desk with the text of scenarios that only this app knows."""
    plans = (
        replace(plan, text=shared_text(known, plan.scenario)) if plan.text is None else plan
        for plan in desk.plans
    )
    return replace(desk, plans=tuple(plans))


def export(shown: View) -> None:
    """The open plan as files, each made when it is asked for."""
    scenario, now = scenario_of(shown.asked), shown.reply.now
    if not isinstance(scenario, Scenario):
        st.caption("An invalid plan has nothing to export; its link can be shared all the same.")
        return
    _button("Scenario (YAML)", lambda: resolve(scenario).encode(), f"{shown.plan.name}.yaml")
    if not isinstance(now, Run):
        return
    if shown.reply.better is not None:
        st.caption("Until the events are played, files hold the fast estimate, and say so.")
    for name, label in _FORMATS.items():
        data, suffix = _file(now, name)
        _button(label, data, f"{shown.plan.name}{suffix}")


def _file(run: Run, name: str) -> tuple[Callable[[], bytes], str]:
    """What makes the file of a format, and how its name ends; several files come as one archive."""
    kind = format_of(name)
    single = name != "csv"

    def data() -> bytes:
        made = kind.files(run, stamp(run, name))
        return made[""] if single else _archive(run.report.hash, kind.SUFFIX, made)

    return data, kind.SUFFIX if single else ".zip"


def _archive(stem: str, suffix: str, files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, data in files.items():
            archive.writestr(f"{stem}{part}{suffix}", data)
    return packed.getvalue()


def _button(label: str, data: Callable[[], bytes], name: str) -> None:
    st.download_button(label, data, name, on_click="ignore", width="stretch")
