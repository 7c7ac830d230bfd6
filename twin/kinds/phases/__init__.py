"""The whole run: phases one after the other, each with a layout of its own, to days, dollars,
checkpoints, data and a calendar.

Every phase's step is played (`play`) through `twin.answers`, so that phases with the same step
share one answer, and what was played before is recalled. Where a phase cannot run or does not fit,
the nearest plan that does takes its place in the totals and is marked as such (`nearest`)."""

from __future__ import annotations

from twin.kinds.phases.check import PhaseCheck, check_phases
from twin.kinds.phases.play import How, whole_run
from twin.kinds.phases.types import Dates, PhaseRun, PhaseSaves, Span, WholeRun

__all__ = [
    "Dates",
    "How",
    "PhaseCheck",
    "PhaseRun",
    "PhaseSaves",
    "Span",
    "WholeRun",
    "check_phases",
    "whole_run",
]
