"""Plan and step time to Goodput: rates, checkpoints and restarts of the scenario, played with
seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, isinf, sqrt
from statistics import fmean, stdev
from typing import Final

from twin.goodput.closed import Expected, daly, daly_first_order, expected, young
from twin.goodput.monte_carlo import Limits, Tally, play
from twin.goodput.rates import DAY, Checkpoint, checkpoint, conditions, per_day, section
from twin.goodput.types import LOSSES, Conditions, Goodput, LargestLoss, Loss, Saves
from twin.planning.types import Plan, Warning
from twin.spec.goodput import GoodputSpec

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
