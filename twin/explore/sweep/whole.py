"""A point of which `twin run` answers more than a step: rollouts, or a whole iteration of
reinforcement learning."""

from __future__ import annotations

from typing import Final

from twin.answers import ask
from twin.errors import Problem, ScenarioError
from twin.explore.sweep.points import PointOutcome, Way
from twin.kinds.iteration.plan import plan as plan_iteration
from twin.reports.numbers import gibibytes
from twin.scenario import Scenario

_WAY: Final[Way] = "whole"


def answered(scenario: Scenario) -> PointOutcome:
    """What is said of the point; it is played anew, in seconds.

    Raises `ScenarioError` where it cannot be.
    """
    if scenario.rl is None:
        fix = "leave the value out, or sweep a scenario without `rl`"
        message = "a training run among points of reinforcement learning"
        raise ScenarioError([Problem("TW185", "rl", message, fix)])
    if scenario.rl.iteration is None:
        return PointOutcome("fits", fidelity=_WAY, kpis=ask(scenario).report.kpis)
    plan = plan_iteration(scenario)
    over = [f"{one.name} is {gibibytes(one.over)} over" for one in plan.fits if not one.fits]
    return PointOutcome(
        "does_not_fit" if over else "fits",
        fidelity=_WAY,
        reason="; ".join(over),
        kpis=ask(scenario).report.kpis,
        headroom_bytes=-max(one.over for one in plan.fits),
    )
