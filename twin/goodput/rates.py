"""From failures of components to interruptions of a job.

A synchronous job stops with any of its components, so the rates of all of them add up (a series
system of parts that fail independently, at rates that do not change with age; Kokolis et al. 2024,
arXiv:2410.21680, section III, find one over their cluster sizes proportional to the nodes). It
breaks where failures come together, such as a power outage, and for parts that wear out.

What a run lives under, in seconds: from the sections of its scenario, and from its plan.

What a checkpoint holds, and how long a save and a load take.

A checkpoint holds the weights and the optimizer's states, each once however many ranks have them:
every rank of a stage writes an equal part, as Megatron-LM's distributed checkpoints and PyTorch's
do. A save copies it to host memory over PCIe, which blocks training in any case, and from there to
the storage. No node holds more than all its GPUs at the fullest stage, and that node is the last.

Left out: state of data loaders, and the metadata of many files, for which `overhead` is there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Final

from twin.goodput.closed import daly
from twin.goodput.types import Conditions, Hazard
from twin.planning.types import Plan
from twin.spec.cluster import ClusterSpec
from twin.spec.goodput import (
    CauseSpec,
    CheckpointSpec,
    CheckpointStorageSpec,
    FailuresSpec,
    GoodputSpec,
    ObservedSpec,
    RestartSpec,
)

HOUR: Final = 3600.0
DAY: Final = 86400.0


def hazards(failures: FailuresSpec, cluster: ClusterSpec) -> tuple[Hazard, ...]:
    """What interrupts a job on all of a cluster, each cause per second."""
    there = {"gpu": cluster.gpus, "nic": cluster.gpus, "node": cluster.nodes, "job": 1}
    return tuple(
        Hazard(
            cause.name,
            there[cause.per] * component_rate(cause, failures.observed),
            cause.planned,
            cause.replaces_node,
        )
        for cause in failures.causes
    )


def component_rate(cause: CauseSpec, observed: ObservedSpec | None) -> float:
    """Failures of one component per second: interruptions / (components x time) where they were
    counted, the maximum-likelihood rate of a Poisson process."""
    if cause.mtbf is not None:
        return 1.0 / cause.mtbf
    if cause.rate is not None:
        return cause.rate / HOUR
    assert cause.count is not None, "a cause says how often it strikes"
    assert observed is not None, "what was counted was observed"
    watched = {"gpu": observed.gpus, "nic": observed.gpus, "node": observed.nodes, "job": 1}
    return cause.count / (watched[cause.per] * observed.time)


def per_day(causes: tuple[Hazard, ...]) -> dict[str, float]:
    """Interruptions in a day by name, the most frequent first; causes of one name together."""
    found: dict[str, float] = {}
    for one in causes:
        found[one.name] = found.get(one.name, 0.0) + DAY * one.per_second
    return dict(sorted(found.items(), key=lambda entry: (-entry[1], entry[0])))


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


WEIGHT_BYTES = 2
"""Weights as training uses them, in bf16, beside the optimizer's in fp32. Under `fully_shard` there
are the latter only."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Bytes of a checkpoint: all, and what one rank of the fullest stage writes."""

    total: float
    rank: float


@dataclass(frozen=True, slots=True)
class Save:
    """Seconds of one save: for which training is blocked, and after those until it counts."""

    blocked: float
    lag: float


def checkpoint(plan: Plan) -> Checkpoint:
    """The bytes of a checkpoint, by the weights and optimizer states of the plan's stages. Norms
    and routers are counted on each tensor rank: less than a thousandth too much."""
    mesh = plan.mesh
    stages = [_stage_bytes(plan, stage) for stage in range(mesh.pipeline)]
    # Bidirectional schedules hold each part of the model on two stages.
    return Checkpoint(sum(stages) / mesh.copies, max(stages) / mesh.copies / mesh.stage_ranks)


def _stage_bytes(plan: Plan, stage: int) -> float:
    """Of what all ranks of a stage hold, each weight and its state once."""
    mesh, optimizer = plan.mesh, plan.scenario.train.optimizer
    width = 0 if plan.scenario.memory.fully_shard else WEIGHT_BYTES
    dense = expert = 0.0
    for chunk in (one for one in plan.chunks if one.stage == stage):
        own = optimizer.state_bytes(chunk.weights)
        dense += own[0] + width * (chunk.weights.replicated + chunk.weights.tensor)
        expert += own[1] + width * chunk.weights.expert
    holders = mesh.context * mesh.data, mesh.expert_data
    return mesh.stage_ranks * (dense / holders[0] + expert / holders[1])


def save(plan: Plan, written: Checkpoint, how: CheckpointSpec) -> Save:
    """Seconds of one save of a checkpoint."""
    pcie = plan.scenario.cluster.node.host.pcie
    copied = how.overhead + written.rank / (pcie.bandwidth * pcie.efficiency)
    stored = moved(plan, written, how.storage)
    if how.save == "synchronous":
        return Save(copied + stored, 0.0)
    return Save(copied, stored)


def moved(plan: Plan, written: Checkpoint, storage: CheckpointStorageSpec) -> float:
    """Seconds in which a checkpoint passes between all nodes and the storage."""
    node = plan.mesh.gpus_per_node * written.rank
    return max(node / storage.per_node, written.total / storage.total)
