"""The one way from a scenario to its answer: the kind of work that it asks for simulates it, or the
store knows what happened already.

The verbs of `twin`: each does its work for whatever kind its first argument is of.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

from twin.answers.nearest import nearest_fit
from twin.answers.run_store import Made, key, put, take
from twin.kinds.base import (
    Check,
    Fidelity,
    Kind,
    Ranks,
    Run,
    Tools,
    kind_named,
    kind_of,
    told_apart,
)
from twin.reports.head import UNTIMED, RunInfo
from twin.scenario import Root, Scenario


def ask(  # noqa: PLR0913  one parameter per choice of the asker
    scenario: Root,
    *,
    fidelity: Fidelity = "events",
    progress: Callable[[float], None] | None = None,
    cache: bool = True,
    command: str | None = None,
    kind: Kind | None = None,
    physics: bool = False,
) -> Run:
    """The answer to a scenario of any kind; a step is stored in `runs/<hash>/` unless `cache` is
    off. `kind` is the one that the scenario asks for, or another that can answer it, too.
    `physics` leaves out the correction by published runs.

    Only the trace is taken from the store: the report is made anew, so that it carries the name,
    the sources and the `command` of the scenario that was asked about. Its `created` and
    `wall_seconds` say when and how long the step was simulated. `progress` is told the share that
    is done, 0 to 1.

    Raises `ScenarioError` where the layout is impossible.
    """

    def step(scenario: Root, progress: Callable[[float], None] | None) -> Run:
        return ask(scenario, fidelity=fidelity, progress=progress, cache=cache)

    begin, kind = time.perf_counter(), kind or kind_of(scenario)
    tools = Tools(fidelity, progress, step, nearest_fit)
    planned = kind.plan(scenario, tools)
    wanted = key(scenario, fidelity) if cache and kind.is_stored else None
    known = take(wanted) if wanted else None
    if known is not None:
        trace, made, path = known
        report = kind.report(planned, trace, RunInfo(made.wall_seconds, command, physics))
        report = _stamped(report, created=made.created, fidelity=fidelity)
        return Run(kind, scenario, planned, trace, report, path, cached=True)
    program = kind.lower(planned, told_apart(fidelity))
    trace = kind.simulate(program, tools)
    made = Made(datetime.now(UTC).isoformat(timespec="milliseconds"), time.perf_counter() - begin)
    report = kind.report(planned, trace, RunInfo(made.wall_seconds, command, physics))
    own = {"fidelity": fidelity} if kind.is_stored else {}
    report = _stamped(report, created=made.created, **own)
    path = put(wanted, cast(Scenario, scenario), trace, report) if wanted else None
    run = Run(kind, scenario, planned, trace, report, path)
    if told_apart(fidelity) == "folded":
        run.__dict__["program"] = program  # what was simulated is not made again
    return run


def _stamped(report: Any, **circumstances: str) -> Any:
    """The report with the moment in which it was simulated, and how."""
    return replace(report, provenance=replace(report.provenance, **circumstances))


def check(scenario: Root) -> Check:
    """Whether a scenario of any kind is valid and fits, and where not, the nearest plans that do.

    Raises `ScenarioError` where its layout is impossible.
    """
    return kind_of(scenario).check(scenario, Tools(nearest=nearest_fit))


def plan(scenario: Root) -> Any:
    """The resolved plan of a scenario. Raises `ScenarioError` where it is impossible."""
    return kind_of(scenario).plan(scenario, Tools(nearest=nearest_fit))


def lower(plan: Any, ranks: Ranks = "folded") -> Any:
    """The program of a plan; `group` and `all` tell more ranks of a step apart than `folded`."""
    return _kind(plan).lower(plan, ranks)


def simulate(
    program: Any,
    progress: Callable[[float], None] | None = None,
    *,
    fidelity: Fidelity = "events",
    extrapolate: bool = True,
) -> Any:
    """What happens when a program runs. `progress` is told the share that is done, 0 to 1."""
    return _kind(program).simulate(program, Tools(fidelity, progress, extrapolate=extrapolate))


def report(plan: Any, trace: Any, run: RunInfo = UNTIMED, *, physics: bool = False) -> Any:
    """The answers to what happened; `physics`: without the correction by published runs."""
    return _kind(plan).report(plan, trace, replace(run, physics=physics or run.physics))


def compare(reports: Sequence[Any]) -> Any:
    """Two or more reports of one kind side by side; the first is the baseline."""
    return _kind(reports[0]).compare(reports)


def _kind(noun: Any) -> Kind:
    """The kind that a noun is of; those of a step name none."""
    return kind_named(getattr(noun, "kind", "step"))
