"""Answers to plans, kept so that an interaction elsewhere costs no second simulation."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, replace

import streamlit as st

from twin.engine import lower, simulate
from twin.engine.trace import Trace
from twin.errors import TwinError
from twin.loading import load
from twin.loading.files import shipped_folder, shipped_scenarios
from twin.plan import plan
from twin.report import Report, Run, report
from twin.ui.fields import written

KEPT = 32
"""Answers kept, for all sessions together; one of a large run is about 10 MB."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the twin says of one plan."""

    report: Report
    trace: Trace

    def named(self, name: str) -> Answer:
        """The same answer under the name that the page shows."""
        return replace(self, report=replace(self.report, name=name))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no answer: the text that the command line would print."""

    text: str


@dataclass(frozen=True, slots=True)
class Written:
    """A scenario before any edit: its title, and its editable fields as text."""

    title: str
    fields: dict[str, str]


def shipped() -> tuple[str, ...]:
    """Names of the scenarios that come with the twin."""
    return shipped_scenarios()


def stamp() -> int:
    """Changes when a shipped scenario or catalog part is edited on disk (ns since the epoch)."""
    return max(path.stat().st_mtime_ns for path in shipped_folder().rglob("*.yaml"))


@st.cache_data(max_entries=KEPT, show_spinner=False)
def answer(scenario: str, edits: tuple[str, ...], as_of: int) -> Answer | Refusal:
    """Load, plan, lower, simulate, report. `as_of` is the files' `stamp`."""
    del as_of
    begin = time.perf_counter()
    try:
        planned = plan(load(scenario, edits))
        trace = simulate(lower(planned))
    except TwinError as error:
        return Refusal(str(error))
    run = Run(wall_seconds=time.perf_counter() - begin, command=command(scenario, edits))
    return Answer(report(planned, trace, run), trace)


@st.cache_data(max_entries=KEPT, show_spinner=False)
def unedited(scenario: str, as_of: int) -> Written | Refusal:
    """What stands in a scenario. `as_of` is the files' `stamp`."""
    del as_of
    try:
        loaded = load(scenario)
    except TwinError as error:
        return Refusal(str(error))
    return Written(loaded.name, written(loaded))


def command(scenario: str, edits: tuple[str, ...]) -> str:
    """The shell command that gives the same answer."""
    return shlex.join(
        ["twin", "run", scenario, *(word for text in edits for word in ("--set", text))]
    )
