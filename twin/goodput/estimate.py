"""Plan and step time to Goodput: rates, checkpoints and restarts of the scenario, played with
seeds.

From failures of components to interruptions of a job.

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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, isinf, sqrt
from statistics import fmean, stdev
from typing import Final

from twin.goodput.closed import (
    LOSSES,
    Conditions,
    Expected,
    Goodput,
    Hazard,
    LargestLoss,
    Loss,
    Saves,
    daly,
    daly_first_order,
    expected,
    young,
)
from twin.goodput.monte_carlo import Limits, Tally, play
from twin.planning.types import Plan, Warning
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

_MOST_STRIKES: Final = 2000.0
"""Interruptions of one simulated run: more tell nothing new and take long."""
_SEARCHED: Final = (16, 100.0)
"""Seeds, and interruptions of each, in the search for the best interval."""
_FACTORS: Final = tuple(2.0 ** (step / 2) for step in range(-4, 5))
"""Of Daly's interval, at which it looks: a quarter to four times."""


def goodput(plan: Plan, step_seconds: float) -> Goodput:
    """How much of its time the run of a plan makes progress, whose steps take so long.

    The scenario must have a section `goodput`.
    """
    spec, days = section(plan), _seconds(plan, step_seconds) / DAY
    written, base = checkpoint(plan), conditions(plan, step_seconds)
    limits, told = _limits(spec, base, DAY * days)
    runs = [play(base, limits, spec.seed + index) for index in range(spec.seeds)]
    closed = expected(base)
    wall, useful = sum(run.wall for run in runs), sum(run.useful for run in runs)
    shares = [run.useful / run.wall for run in runs]
    fraction = useful / wall
    progress, losses = _mean(runs)
    return Goodput(
        fraction=fraction,
        interval=middle(shares),
        standard_error=stdev(shares) / sqrt(len(shares)) if len(shares) > 1 else 0.0,
        expected_fraction=closed.fraction,
        wall_ns=progress + sum(losses.values()),
        useful_ns=progress,
        losses_ns=losses,
        expected_losses=closed.losses,
        per_day=per_day(base.hazards),
        interruptions=fmean(sum(run.strikes) for run in runs),
        saves=_saves(spec, base, written, step_seconds),
        restart_seconds=base.restart,
        planned_restart_seconds=base.planned_restart,
        largest=_largest(spec.target_fraction, base, runs),
        days=days,
        days_with_failures=days / fraction if useful else None,
        seeds=spec.seeds,
        seed=spec.seed,
        source=spec.failures.name,
        warnings=(*_caveats(plan, spec, base), *told),
    )


def expected_goodput(plan: Plan, step_seconds: float) -> Expected:
    """The effective share of the time in the closed form, in microseconds instead of a simulation:
    for those who compare many plans. It knows no end of spares."""
    return expected(conditions(plan, step_seconds))


def _seconds(plan: Plan, step_seconds: float) -> float:
    """Of the whole run without failures."""
    train = plan.scenario.train
    return train.tokens / train.global_batch * step_seconds


def _limits(
    spec: GoodputSpec, one: Conditions, seconds: float
) -> tuple[Limits, tuple[Warning, ...]]:
    """How long is simulated: what was asked for, as far as it has no more interruptions than are
    worth it."""
    rate = one.unexpected + one.planned
    wanted = spec.over or seconds / max(expected(one).fraction, 1e-9)
    most = _MOST_STRIKES / rate if rate else inf
    if wanted > most:
        text = (
            f"Of {wanted / DAY:,.0f} days with failures {most / DAY:,.1f} were simulated, with "
            f"{_MOST_STRIKES:,.0f} interruptions in each run: the spread of longer ones is smaller."
        )
        return Limits(inf, most), (Warning("goodput-of-a-part", text),)
    return (Limits(inf, spec.over) if spec.over else Limits(seconds)), ()


def middle(values: Sequence[float], share: float = 0.8) -> tuple[float, float]:
    """What `share` of the values lie between, as many below as above; linear between two."""
    ranked = sorted(values)

    def at(quantile: float) -> float:
        place = quantile * (len(ranked) - 1)
        below = int(place)
        above = min(below + 1, len(ranked) - 1)
        return ranked[below] + (place - below) * (ranked[above] - ranked[below])

    return at((1 - share) / 2), at((1 + share) / 2)


def _mean(runs: Sequence[Tally]) -> tuple[int, dict[Loss, int]]:
    """Progress and losses of the mean run in whole nanoseconds, which sum to its time: what
    rounding down leaves goes one each to the largest remainders."""
    totals = {name: sum(run.losses[name] for run in runs) for name in LOSSES}
    parts = {"": sum(run.useful for run in runs), **totals}
    shares = {name: divmod(total, len(runs)) for name, total in parts.items()}
    left = sum(parts.values()) // len(runs) - sum(floor for floor, _ in shares.values())
    favoured = sorted(shares, key=lambda name: -shares[name][1])[:left]
    mean = {name: floor + (name in favoured) for name, (floor, _) in shares.items()}
    return mean[""], {name: mean[name] for name in LOSSES}


def _saves(spec: GoodputSpec, one: Conditions, written: Checkpoint, step: float) -> Saves:
    mtbf = 1.0 / one.unexpected if one.unexpected else None
    return Saves(
        bytes=written.total,
        blocked_seconds=one.blocked,
        durable_seconds=one.blocked + one.lag,
        every_seconds=None if isinf(one.every) else one.every,
        every="auto" if spec.checkpoint.every is None else "written",
        young_seconds=young(one.blocked, mtbf) if mtbf else None,
        daly_first_seconds=daly_first_order(one.blocked, mtbf) if mtbf else None,
        daly_seconds=daly(one.blocked, mtbf) if mtbf else None,
        simulated_seconds=best_interval(one, spec.seed, max(one.lag, step)) if mtbf else None,
    )


def best_interval(one: Conditions, seed: int, least: float) -> float:
    """The interval in seconds of work that makes most progress in simulation: all candidates meet
    the same failures, and a parabola through the best and its neighbours, in logarithms, tells what
    lies between. `least`: the shortest that is possible."""
    start = max(daly(one.blocked, 1.0 / one.unexpected), least)
    seeds, strikes = _SEARCHED
    limits = Limits(inf, strikes / (one.unexpected + one.planned))
    # Spares and slow nodes strike all candidates alike.
    plain = replace(one, spares=None, slow=0.0)
    tried = [start * factor for factor in _FACTORS if start * factor >= least]
    made = [
        sum(
            play(replace(plain, every=every), limits, seed + index).useful for index in range(seeds)
        )
        for every in tried
    ]
    best = max(range(len(tried)), key=made.__getitem__)
    if not 0 < best < len(tried) - 1:
        return tried[best]
    left, here, right = made[best - 1 : best + 2]
    bend = left - 2 * here + right
    shift = 0.5 * (left - right) / bend if bend else 0.0
    return tried[best] * 2.0 ** (shift / 2)


def _largest(target: float, one: Conditions, runs: Sequence[Tally]) -> LargestLoss:
    """Time x (1 - target) / interruptions: of the rates, and of each simulated run."""
    rate = one.unexpected + one.planned
    struck = [run for run in runs if sum(run.strikes)]
    if not rate or not struck:
        return LargestLoss(target, (1.0 - target) / rate if rate else None, None, None, None)
    each = [(1.0 - target) * run.wall / sum(run.strikes) / 1e9 for run in struck]
    strikes = sum(sum(run.strikes) for run in struck)
    wall = sum(run.wall for run in struck) / 1e9
    # A slow node costs time whether or not anything fails.
    lost = sum(sum(run.losses.values()) - run.losses["stragglers"] for run in struck) / 1e9
    mean = (1.0 - target) * wall / strikes
    return LargestLoss(target, (1.0 - target) / rate, mean, middle(each), lost / strikes)


def _caveats(plan: Plan, spec: GoodputSpec, one: Conditions) -> list[Warning]:
    """What a reader must know of the goodput."""
    found: list[Warning] = []
    gpu, known = plan.scenario.cluster.node.gpu.name, spec.failures
    if known.gpu.casefold() not in gpu.casefold():
        text = f"Failures of {known.name} were observed on {known.gpu}, and this cluster has {gpu}."
        found.append(Warning("failures-of-another-gpu", text))
    assumed = _assumed(plan)
    if assumed:
        text = f"Assumed of failures, not observed on such a cluster: {', '.join(assumed)}."
        found.append(Warning("assumed-failures", text))
    wanted = spec.checkpoint.every
    if wanted is not None and wanted < one.lag:
        text = (
            f"A checkpoint takes {one.lag:.3g} s to reach the storage, longer than the "
            f"{wanted:.3g} s between two: a save waits for the one before."
        )
        found.append(Warning("checkpoint-waits-for-storage", text))
    return found


def _assumed(plan: Plan) -> list[str]:
    """Sections under `goodput` with numbers that have no source but somebody's judgement."""
    ledger = plan.scenario.ledger
    paths = (path.split(".") for path, one in ledger.items() if one.kind == "assumed")
    return sorted({".".join(path[:2]) for path in paths if path[0] == "goodput"})


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
