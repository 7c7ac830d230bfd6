"""How far the days of a job may lie off: every number behind them that has a range is put to either
end, one at a time, and what that changes adds up as independent errors do, in logarithms.

These are ranges of inputs (catalog parts of the data, the calibration, the links), not residuals:
no published run of this kind is there to be wrong about, so nobody can say how many of ten lie
inside. What the inference model leaves out is a number of the engine (`utilisation`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp, hypot, log
from typing import Any, Final

from pydantic import ValidationError

from twin.data.types import JobRun
from twin.errors import ScenarioError
from twin.loading.files import ranges, with_number
from twin.scenario import Scenario

ROOTS: Final = (
    "data.engine",
    "data.rephrasing",
    "data.trajectories",
    "calibration",
    "cluster.fabric",
    "cluster.node.nic",
    "cluster.node.nvlink",
)
"""Sections whose ranges move the days of generation."""
_SHOWN: Final = 5
"""Numbers that are named, of those that move the days most."""
_LEAST: Final = 0.002
"""Changes below this are not named."""

Again = Callable[[Scenario], Sequence[JobRun]]


def reach(scenario: Scenario, jobs: Sequence[JobRun], again: Again) -> tuple[JobRun, ...]:
    """The jobs, each with the range of its days and the numbers that move it most; `again` runs
    them in another scenario."""
    moves: list[dict[str, tuple[float, float]]] = [{} for _ in jobs]
    for path, low, high in ranges(scenario, ROOTS):
        ends = [_days(scenario, path, end, again) for end in (low, high)]
        for at, job in enumerate(jobs):
            pair = [end[at] / job.days if end and job.days else 1.0 for end in ends]
            moves[at][path] = pair[0], pair[1]
    return tuple(_with(job, own) for job, own in zip(jobs, moves, strict=True))


def _days(scenario: Scenario, path: str, value: Any, again: Again) -> list[float] | None:
    """Days of each job with another number at a path; None where none can be with it."""
    try:
        return [job.days for job in again(with_number(scenario, path, value))]
    except (ScenarioError, ValidationError):
        return None


def _with(job: JobRun, moves: Mapping[str, tuple[float, float]]) -> JobRun:
    if not moves:
        return job
    low = high = 0.0
    for pair in moves.values():
        changes = [log(one) for one in pair if one > 0]
        low = hypot(low, min(0.0, *changes))
        high = hypot(high, max(0.0, *changes))
    order = sorted(moves.items(), key=lambda item: -abs(log(item[1][1]) - log(item[1][0])))
    named = [(path, *pair) for path, pair in order[:_SHOWN] if abs(log(pair[1] / pair[0])) > _LEAST]
    span = job.days * exp(-low), job.days * exp(high)
    return replace(job, interval=span, drivers=tuple(named))
