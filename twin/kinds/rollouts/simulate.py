"""Plan to trace of rollouts, with and without partial ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from twin.errors import Problem, ScenarioError
from twin.inference import Engine
from twin.kinds.rollouts.draw import draw
from twin.kinds.rollouts.pace import step_table
from twin.kinds.rollouts.plan import PATH, RolloutPlan, rules_of
from twin.kinds.rollouts.play import play
from twin.kinds.rollouts.types import BothTraces, Place, RolloutTrace, Rules, Sample
from twin.spec.rollout import RolloutSpec


def simulate(plan: RolloutPlan) -> BothTraces:
    """Simulate rollouts.

    Raises `ScenarioError` where an engine has no room for the longest request.
    """
    spec, server, place = plan.spec, plan.server, plan.place
    try:
        trace = played(spec, server, place, rules_of(spec))
        patient = played(spec, server, place, Rules()) if spec.partial else None
    except ScenarioError as error:
        raise ScenarioError(plan.scenario.locate(error.problems)) from None
    return BothTraces(trace, patient)


def _fresh(spec: RolloutSpec, count: int, iteration: int) -> Sequence[Sample]:
    return draw(spec, count, iteration)


def played(spec: RolloutSpec, server: Engine, place: Place, rules: Rules) -> RolloutTrace:
    """The rollouts of a scenario, played on so many engines under the rules.

    Raises `ScenarioError` where an engine has no room for the longest request.
    """
    fresh = partial(_fresh, spec)
    most = min(spec.requests, place.sequences * place.engines)
    table = step_table(server, max(1, -(-most // (place.engines * server.groups))))
    try:
        return play(fresh, spec.requests, table, place, rules, spec.iterations)
    except ValueError as error:
        fix = "give the engine more GPUs or a smaller cache, or write a `longest` of `written`"
        raise ScenarioError([Problem("TW181", f"{PATH}.engine", str(error), fix)]) from None
