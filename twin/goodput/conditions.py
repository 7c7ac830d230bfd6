"""What a run lives under, in seconds: from the sections of its scenario, and from its plan."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf

from twin.goodput.interval import daly
from twin.goodput.rates import hazards
from twin.goodput.saving import checkpoint, moved, save
from twin.goodput.types import Conditions
from twin.planning.types import Plan
from twin.spec.goodput import GoodputSpec, RestartSpec


def section(plan: Plan) -> GoodputSpec:
    """What the scenario says of failures; it must say something."""
    spec = plan.scenario.goodput
    assert spec is not None, "a run without a section `goodput` has no goodput"
    return spec


def conditions(plan: Plan, step_seconds: float) -> Conditions:
    """What the run of a plan lives under, in seconds."""
    spec, cluster = section(plan), plan.scenario.cluster
    written = checkpoint(plan)
    cost = save(plan, written, spec.checkpoint)
    load = spec.restart.load
    if load is None:
        load = moved(plan, written, spec.checkpoint.storage)
    spares, slow = spec.spares, spec.stragglers
    found = Conditions(
        hazards=hazards(spec.failures, cluster),
        every=inf,
        blocked=cost.blocked,
        lag=cost.lag,
        restart=spec.restart.detect + _planned(spec.restart, load),
        planned_restart=_planned(spec.restart, load),
        spares=spares.nodes if spares else None,
        repair=spares.repair if spares else 0.0,
        # The slowest of all nodes: none of them is slow with (1 - share)^nodes.
        slow=1.0 - (1.0 - slow.share) ** cluster.nodes if slow else 0.0,
        slowdown=slow.slowdown if slow else 1.0,
    )
    return replace(found, every=_every(spec, found, step_seconds))


def _planned(restart: RestartSpec, load: float) -> float:
    return restart.reschedule + restart.initialise + load + restart.warm_up


def _every(spec: GoodputSpec, one: Conditions, step: float) -> float:
    """Work between two saves: whole steps, since a checkpoint lies between two, and no less than
    what the storage takes to make one durable."""
    wanted = spec.checkpoint.every
    if wanted is None:
        if not one.unexpected:
            return inf
        wanted = daly(one.blocked, 1.0 / one.unexpected)
    return step * max(ceil(max(wanted, one.lag) / step - 1e-9), 1)
