"""How far the seconds of an iteration may lie off.

Training: as far as published steps say (`twin.reports.interval`), four of five of which lie inside;
and as far as the tuned stack, where the software is assumed.
Rollouts: no published run tells, so what the ranges of the engine, the calibration and the links
make of a decode step (`twin.loading.input_ranges`): what rollouts take is steps. Both at once is
the iteration's interval; the update and the switches stay as they are. It breaks where something
that no number says, such as how lengths are spread, is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import Any, Final

from twin.engine import lower, simulate
from twin.inference.seconds import decode_pass
from twin.kinds.iteration.simulate import length_of
from twin.kinds.iteration.types import IterationPlan, IterationTrace, Phase, Round
from twin.kinds.rollouts.plan import server_of
from twin.loading.input_ranges import at_both_ends, spread
from twin.reports.interval import circumstances, reach, shipped
from twin.reports.tuned_step import tuned_step
from twin.scenario import Scenario

ROOTS: Final = (
    "rl.rollout.engine",
    "calibration",
    "cluster.fabric",
    "cluster.node.nic",
    "cluster.node.nvlink",
)
"""Sections whose ranges move a decode step."""

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Factors:
    """By how much rollouts and training may take less, and more."""

    rollout: Interval
    train: Interval


def factors(plan: IterationPlan, trace: IterationTrace) -> Factors | None:
    """How far both reach; None where no published step is like the trainer's."""
    step = reach(circumstances(plan.trainer, {}), "step_seconds", shipped())
    if step is None:
        return None
    step = step.physics
    tuned = tuned_step(plan.trainer, assumed=plan.trainer.scenario.software_assumed)
    if tuned is not None:  # as a ratio of two estimates
        own = simulate(lower(plan.trainer)).step_ns / 1e9
        step = replace(step, other=log(tuned.seconds / own))
    return Factors(_rollout(plan, *_middle(plan, trace)), step.spread(1.0))


def interval(plan: IterationPlan, trace: IterationTrace, found: Factors) -> Interval:
    """Seconds of an iteration at either end."""
    ends = [_mean(plan, trace.rounds, found, end) for end in (0, 1)]
    return ends[0], ends[1]


def _mean(plan: IterationPlan, rounds: tuple[Round, ...], found: Factors, end: int) -> float:
    total = 0.0
    for one in rounds:
        parts: dict[Phase, float] = dict(one.parts_ns)
        parts["rollout"] *= found.rollout[end]
        parts["score"] *= found.train[end]
        parts["train"] *= found.train[end]
        total += length_of(plan.spec.mode, parts, one.early_ns)
    return total / 1e9 / len(rounds)


def _middle(plan: IterationPlan, trace: IterationTrace) -> tuple[int, float]:
    """Sequences of a group that are written at a time, and half of what each comes to."""
    last = trace.rollouts.iterations[-1]
    lengths = last.lengths or (1,)
    busy = sum(load.running for load in last.loads) / max(1, len(last.loads))
    groups = plan.engines * plan.server.groups
    return max(1, round(busy / groups)), sum(lengths) / len(lengths) / 2


def _rollout(plan: IterationPlan, batch: int, cached: float) -> Interval:
    def step(scenario: Scenario) -> float:
        """Seconds of a decode step."""
        assert scenario.rl is not None, "it has rollouts"
        nodes: dict[str, Any] = {"nodes": plan.rollouts.nodes}
        rollouts = scenario.rl.rollout.model_copy(update=nodes)
        return decode_pass(server_of(scenario, rollouts)[0], batch, cached).seconds

    now = decode_pass(plan.server, batch, cached).seconds
    found = at_both_ends(plan.scenario, ROOTS, step)
    return spread([end / now for end in ends if end] for _, *ends in found)
