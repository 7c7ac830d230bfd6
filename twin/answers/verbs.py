"""The verbs of `twin`: each does its work for whatever kind its first argument is of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twin.answers.nearest import nearest_fit
from twin.kinds.base import Fidelity, Kind, Ranks, Tools, kind_named, kind_of
from twin.reports.head import UNTIMED, RunInfo
from twin.scenario import Root


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


def report(plan: Any, trace: Any, run: RunInfo = UNTIMED) -> Any:
    """The answers to what happened."""
    return _kind(plan).report(plan, trace, run)


def compare(reports: Sequence[Any]) -> Any:
    """Two or more reports of one kind side by side; the first is the baseline."""
    return _kind(reports[0]).compare(reports)


def _kind(noun: Any) -> Kind:
    """The kind that a noun is of; those of a step name none."""
    return kind_named(getattr(noun, "kind", "step"))
