"""A scenario to its answer: from the store where it is known, or by playing the step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from twin.answers.key import Fidelity, key
from twin.answers.run_store import Made, put, take
from twin.engine import lower, simulate
from twin.engine.trace import Trace
from twin.planning import plan
from twin.planning.types import Plan
from twin.reports import Report, report
from twin.reports import Run as Circumstances
from twin.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Run:
    """A scenario, answered."""

    scenario: Scenario
    plan: Plan
    trace: Trace
    report: Report
    stored: Path | None
    """The folder that holds the answer; None where it is not stored."""
    cached: bool
    """True where the step was played by an earlier run."""


def run(
    scenario: Scenario,
    *,
    fidelity: Fidelity = "events",
    progress: Callable[[float], None] | None = None,
    cache: bool = True,
    command: str | None = None,
) -> Run:
    """The answer to a scenario, stored in `runs/<hash>/` unless `cache` is off.

    Only the trace is taken from the store: the report is made anew, so that it carries the name,
    the sources and the `command` of the scenario that was asked about. Its `created` and
    `wall_seconds` say when and how long the step was played. `progress` is told the share that is
    done, 0 to 1.

    Raises `ScenarioError` where the layout is impossible.
    """
    begin = time.perf_counter()
    planned = plan(scenario)
    wanted = key(scenario, fidelity)
    known = take(wanted) if cache else None
    if known is not None:
        trace, made, path = known
        answer = _report(planned, trace, fidelity, made, command)
        return Run(scenario, planned, trace, answer, path, cached=True)
    trace = _played(planned, fidelity, progress)
    made = Made(datetime.now(UTC).isoformat(timespec="milliseconds"), time.perf_counter() - begin)
    answer = _report(planned, trace, fidelity, made, command)
    path = put(wanted, scenario, trace, answer) if cache else None
    return Run(scenario, planned, trace, answer, path, cached=False)


def _played(planned: Plan, fidelity: Fidelity, progress: Callable[[float], None] | None) -> Trace:
    if fidelity == "group":
        return simulate(lower(planned, "group"), progress)
    return simulate(lower(planned), progress, fidelity=fidelity)


def _report(
    planned: Plan, trace: Trace, fidelity: Fidelity, made: Made, command: str | None
) -> Report:
    answer = report(planned, trace, Circumstances(made.wall_seconds, command))
    return replace(
        answer, provenance=replace(answer.provenance, created=made.created, fidelity=fidelity)
    )
