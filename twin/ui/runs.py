"""Real runs as the app shows them: found where trainers write, and those that it was opened with. A
visitor chooses among them, and can make the app read nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from twin.answers import runs_folder
from twin.engine.trace import Trace
from twin.evidence.measured.run_folder import MeasuredRun, is_run, read, runs_in, stamp
from twin.evidence.measured.step import trace
from twin.evidence.measured.summary import RunSummary, summary
from twin.ui.answers import Failure, guarded
from twin.ui.known import asked_for

_KEPT: Final = 8
"""Runs kept in memory."""


@dataclass(frozen=True, slots=True)
class Happened:
    """A real run, the step of it that is shown, and that step as a trace."""

    run: MeasuredRun
    summary: RunSummary
    trace: Trace


def runs() -> Mapping[str, Path]:
    """The real runs of this app by name: those that it was opened with, then the newest first."""
    asked = [Path(one) for one in asked_for() if is_run(one)]
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
