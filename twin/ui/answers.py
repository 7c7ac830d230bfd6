"""Answers to plans, kept so that an interaction elsewhere costs no second simulation.

One thread works, on one plan after the other, whatever the pages do meanwhile: a visitor who clicks
before an answer is there loses nothing of it."""

from __future__ import annotations

import logging
import shlex
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

import streamlit as st

from twin.engine import lower, simulate
from twin.engine.trace import Trace
from twin.errors import Problem, TwinError, render
from twin.loading import load
from twin.loading.files import read_family, shipped_folder, shipped_scenarios
from twin.plan import plan
from twin.report import Report, Run, report
from twin.ui.fields import written

_LOG = logging.getLogger(__name__)

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
    """Why there is no answer: what is wrong with the plan, and the edits that it was loaded
    with."""

    problems: tuple[Problem, ...]
    edits: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What the command line would print."""
        return render(self.problems)


@dataclass(frozen=True, slots=True)
class Bug:
    """Why there is no answer: the twin failed in a way that it should not."""

    text: str
    command: str
    """The command that fails in the same way."""


Outcome = Answer | Refusal | Bug


@dataclass(frozen=True, slots=True)
class Written:
    """A scenario before any edit: its title, and its editable fields as text."""

    title: str
    fields: dict[str, str]


@dataclass(frozen=True, slots=True)
class Question:
    """A scenario under edits, with the files as they stood at `as_of` (their `stamp`)."""

    scenario: str
    edits: tuple[str, ...]
    as_of: int


@dataclass(slots=True)
class Progress:
    """The share of a simulation that is done, 0 to 1; written by one thread, read by others."""

    share: float = 0.0

    def note(self, share: float) -> None:
        """Remember how far the simulation is."""
        self.share = share


@dataclass(frozen=True, slots=True)
class Pending:
    """An answer in the making, or made."""

    future: Future[Outcome]
    progress: Progress

    def within(self, seconds: float) -> Outcome | None:
        """The answer, or None where it takes longer than that."""
        done, _ = wait([self.future], seconds)
        return self.future.result() if done else None


@dataclass(frozen=True, slots=True)
class _Desk:
    """Where questions are worked on and answers kept, for all sessions together."""

    worker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "twin"))
    shelf: OrderedDict[Question, Pending] = field(default_factory=OrderedDict[Question, Pending])
    lock: Lock = field(default_factory=Lock)


@st.cache_resource(show_spinner=False)
def _desk() -> _Desk:
    return _Desk()


def ask(question: Question) -> Pending:
    """The answer to a question: kept from before, or in the making once earlier ones are done."""
    desk = _desk()
    with desk.lock:
        if question not in desk.shelf:
            progress = Progress()
            future = desk.worker.submit(answer, question, progress.note)
            desk.shelf[question] = Pending(future, progress)
        desk.shelf.move_to_end(question)
        while len(desk.shelf) > KEPT:
            desk.shelf.popitem(last=False)
        return desk.shelf[question]


def answer(question: Question, progress: Callable[[float], None] | None = None) -> Outcome:
    """Load, plan, lower, simulate, report. `progress` is told the share that is done."""
    begin = time.perf_counter()
    again = command(question.scenario, question.edits)
    try:
        planned = plan(load(question.scenario, question.edits))
        trace = simulate(lower(planned), progress)
        run = Run(wall_seconds=time.perf_counter() - begin, command=again)
        return Answer(report(planned, trace, run), trace)
    except TwinError as error:
        return Refusal(error.problems, question.edits)
    except Exception as error:  # noqa: BLE001  a bug of ours must not take the other plans along
        return _bug(error, again)


@st.cache_data(max_entries=KEPT, show_spinner=False)
def unedited(scenario: str, as_of: int) -> Written | Refusal | Bug:
    """What stands in a scenario. `as_of` is the files' `stamp`."""
    del as_of
    try:
        loaded = load(scenario)
        return Written(loaded.name, written(loaded))
    except TwinError as error:
        return Refusal(error.problems)
    except Exception as error:  # noqa: BLE001  as above
        return _bug(error, command(scenario, ()))


def _bug(error: Exception, again: str) -> Bug:
    """The traceback goes to the log of the app, never to the page."""
    _LOG.error("an answer failed: %s", again, exc_info=error)
    return Bug(f"{type(error).__name__}: {error}", again)


def shipped() -> tuple[str, ...]:
    """Names of the scenarios that come with the twin."""
    return shipped_scenarios()


def stamp(files: Sequence[str] = ()) -> int:
    """Changes when a shipped scenario or catalog part is edited on disk, or one of these files, or
    anything that they extend or name."""
    folders = {folder for file in files for folder in read_family(Path(file)).folders}
    found = {path for folder in folders for path in folder.glob("*.yaml")}
    found |= {path for folder in folders for path in (folder / "catalog").rglob("*.yaml")}
    found |= {Path(file) for file in files if Path(file).exists()}
    found |= set(shipped_folder().rglob("*.yaml"))
    return hash(tuple((str(path), path.stat().st_mtime_ns) for path in sorted(found)))


def command(scenario: str, edits: tuple[str, ...]) -> str:
    """The shell command that gives the same answer."""
    return shlex.join(
        ["twin", "run", scenario, *(word for text in edits for word in ("--set", text))]
    )
