"""Plan and trace of an iteration to its report: how long, why, what GPUs wait for, what it costs.
`to_json` is the document that `twin run --json` prints.

An iteration as tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import floor, log
from typing import Any, ClassVar, Final

from twin.engine import lower, simulate
from twin.inference.seconds import decode_pass
from twin.kinds.iteration.simulate import length_of
from twin.kinds.iteration.types import (
    CAUSES,
    NAME,
    PHASES,
    WORKS,
    Batch,
    Cause,
    Fit,
    IterationPlan,
    IterationTrace,
    Phase,
    Round,
    Work,
)
from twin.kinds.rollouts.plan import server_of
from twin.kinds.weight_update.report import UNMEASURED
from twin.loading import scenario_hash
from twin.loading.input_ranges import at_both_ends, spread
from twin.planning.types import Warning
from twin.reports.cost import NO_PRICE, hourly
from twin.reports.head import (
    FITS,
    UNCALIBRATED,
    UNTIMED,
    Head,
    Interval,
    RunInfo,
    expectation_notes,
    judge,
    provenance,
)
from twin.reports.interval import circumstances, reach, shipped
from twin.reports.summary import catalog_use, resolved
from twin.reports.table import (
    IN_BRACKETS,
    Block,
    Table,
    bar,
    count,
    digits,
    duration,
    gibibytes,
    headed,
    headless,
    percent,
    show,
    warning_notes,
)
from twin.reports.tuned_step import tuned_step
from twin.scenario import Scenario
from twin.spec.expect import FIGURES
from twin.spec.kpis import ITERATION_KPIS

DAY: Final = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationReport(Head):
    """The answers to an iteration. Shares of `busy` and `idle` sum to one."""

    kind: ClassVar[str] = NAME
    uncalibrated_codes: ClassVar[frozenset[str]] = (
        UNCALIBRATED | UNMEASURED | {"update-between-nodes"}
    )

    mode: str
    gpus: int
    rollout_gpus: int
    train_gpus: int
    phases: Mapping[Phase, float]
    """Mean seconds of each phase."""
    busy: Mapping[Work, float]
    idle: Mapping[Cause, float]
    idle_gpu_seconds: Mapping[Cause, float]
    """Of one iteration."""
    rounds: tuple[Round, ...]
    batch: Batch
    """Of the last iteration."""
    fits_of: tuple[Fit, ...]
    switch_bytes: float

    @property
    def verdict(self) -> str:
        """Does it fit, how long, and what GPUs wait for."""
        return verdict(self)

    @property
    def per_thousand(self) -> float | None:
        """Dollars of a thousand iterations; None without a price."""
        one = self.kpis["cost_usd_per_iteration"]
        return None if one is None else 1000 * one

    def body(self) -> dict[str, Any]:
        """What only an iteration has."""
        return {
            "mode": self.mode,
            "cost_usd_per_1000": self.per_thousand,
            "gpus": {
                "all": self.gpus,
                "rollouts": self.rollout_gpus,
                "training": self.train_gpus,
            },
            "phases": dict(self.phases),
            "busy": dict(self.busy),
            "idle": dict(self.idle),
            "idle_gpu_seconds": dict(self.idle_gpu_seconds),
            "timeline": [[asdict(span) for span in one.spans] for one in self.rounds],
            "batch": asdict(self.batch),
            "switch_bytes": self.switch_bytes,
            "memory": [asdict(one) | {"fits": one.fits} for one in self.fits_of],
        }


def report(plan: IterationPlan, trace: IterationTrace, run: RunInfo = UNTIMED) -> IterationReport:
    """The answers to an iteration, in its steady state."""
    scenario, rounds = plan.scenario, trace.rounds
    reach = factors(plan, trace)
    kpis = _kpis(plan, trace)
    whole = plan.gpus * trace.length_ns
    idle: dict[Cause, int] = {cause: sum(one.idle_ns[cause] for one in rounds) for cause in CAUSES}
    return IterationReport(
        name=scenario.name,
        hash=scenario_hash(scenario),
        mode=plan.spec.mode,
        gpus=plan.gpus,
        rollout_gpus=plan.rollout_gpus,
        train_gpus=plan.train_gpus,
        kpis=kpis,
        intervals=_intervals(plan, trace, kpis, reach),
        phases=_phases(rounds),
        busy={work: sum(one.busy_ns[work] for one in rounds) / whole for work in WORKS},
        idle={cause: ns / whole for cause, ns in idle.items()},
        idle_gpu_seconds={cause: ns / 1e9 / len(rounds) for cause, ns in idle.items()},
        rounds=rounds,
        batch=rounds[-1].batch,
        fits=all(fit.fits for fit in plan.fits),
        fits_of=plan.fits,
        switch_bytes=plan.switch.bytes if plan.colocated else 0.0,
        scenario=resolved(scenario),
        warnings=tuple(_warnings(plan, kpis, reach)),
        expectations=judge(scenario.expect, {FITS: all(f.fits for f in plan.fits), **kpis}),
        provenance=provenance(
            scenario.calibration.name,
            "events",
            trace.events,
            catalog_use(scenario.ledger),
            run,
        ),
    )


def _phases(rounds: tuple[Round, ...]) -> dict[Phase, float]:
    return {
        phase: sum(one.parts_ns[phase] for one in rounds) / 1e9 / len(rounds) for phase in PHASES
    }


def _kpis(plan: IterationPlan, trace: IterationTrace) -> dict[str, float | None]:
    rounds = trace.rounds
    seconds = trace.length_ns / 1e9 / len(rounds)
    trained = sum(one.batch.trained for one in rounds) / len(rounds)
    idle = sum(sum(one.idle_ns.values()) for one in rounds)
    phases = _phases(rounds)
    scenario = plan.scenario
    prices = hourly(scenario.cost, scenario.cluster.node) if scenario.cost else {}
    hours = plan.gpus * seconds / 3600
    return {
        "iteration_seconds": seconds,
        "iterations_per_day": DAY / seconds,
        "rollout_seconds": phases["rollout"],
        "train_seconds": phases["score"] + phases["train"],
        "trained_tokens_per_second_per_gpu": trained / seconds / plan.gpus,
        "idle_share": idle / (plan.gpus * trace.length_ns),
        "cost_usd_per_iteration": sum(hours * one for one in prices.values()) if prices else None,
    }


def _intervals(
    plan: IterationPlan,
    trace: IterationTrace,
    kpis: Mapping[str, float | None],
    reach: Factors | None,
) -> dict[str, Interval | None]:
    found: dict[str, Interval | None] = {kpi.key: None for kpi in ITERATION_KPIS}
    seconds = kpis["iteration_seconds"]
    if reach is None or seconds is None:
        return found
    low, high = interval(plan, trace, reach)

    def scaled(key: str, span: Interval) -> Interval | None:
        value = kpis[key]
        return None if value is None else (value * span[0], value * span[1])

    own, inverse = (low / seconds, high / seconds), (seconds / high, seconds / low)
    for key in ("iteration_seconds", "cost_usd_per_iteration"):
        found[key] = scaled(key, own)
    for key in ("iterations_per_day", "trained_tokens_per_second_per_gpu"):
        found[key] = scaled(key, inverse)
    found["rollout_seconds"] = scaled("rollout_seconds", reach.rollout)
    found["train_seconds"] = scaled("train_seconds", reach.train)
    return found


def _warnings(
    plan: IterationPlan, kpis: Mapping[str, float | None], reach: Factors | None
) -> Iterable[Warning]:
    yield from plan.warnings
    if plan.rollouts.iterations < 3 and plan.rollouts.partial:
        text = "Partial rollouts have hardly settled: play more with `rl.rollout.iterations`."
        yield Warning("not-settled", text)
    if kpis["cost_usd_per_iteration"] is None:
        yield NO_PRICE
    if reach is None:
        text = "No key figure has an interval: no published step is like the trainer's."
        yield Warning("no-interval", text)
    else:
        text = (
            "The interval of training is of published steps; that of rollouts is how far the "
            "ranges of the engine's numbers reach, since no published rollouts tell. Update and "
            "switches have none."
        )
        yield Warning("interval-of-parts", text)


def verdict(report: IterationReport) -> str:
    """Plain sentences: does it fit, how long, and what GPUs wait for."""
    kpis = report.kpis
    seconds, idle = kpis["iteration_seconds"] or 0.0, kpis["idle_share"] or 0.0
    longest = max(report.phases, key=lambda phase: report.phases[phase])
    share = 100 * report.phases[longest] / seconds
    gpus = "1 GPU" if report.gpus == 1 else f"{report.gpus:,} GPUs"
    often = show(kpis["iterations_per_day"], "/d")
    answer = (
        f"An iteration takes {report.ranged(FIGURES['iteration_seconds'])} on {gpus}, {often}, "
        f"{digits(share)} % of it {PHASES[longest]}. GPUs are idle "
        f"{digits(100 * idle)} % of the time{_most(report)}."
    )
    if report.fits:
        return f"{fitting(report.fits_of)} {answer}"
    return f"{fitting(report.fits_of)} If it did fit: {answer[0].lower()}{answer[1:]}"


def _most(report: IterationReport) -> str:
    cause = max(report.idle, key=lambda one: report.idle[one])
    return f", mostly: {CAUSES[cause]}" if report.idle[cause] else ""


def fitting(fits: Iterable[Fit]) -> str:
    """Does it fit: which phase has least room left, or what is too large."""
    every = tuple(fits)
    over = [one for one in every if not one.fits]
    if over:
        told = ", ".join(
            f"{one.name} takes {gibibytes(one.bytes)} of {gibibytes(one.capacity)}" for one in over
        )
        return f"Does not fit: {told}."
    tightest = max(every, key=lambda one: one.bytes / one.capacity)
    left = gibibytes(float(floor(tightest.capacity - tightest.bytes)))
    return f"Fits; tightest is the {tightest.name}, with {left} to spare."


def batch_words(one: Batch) -> str:
    """What was trained on, in a sentence."""
    steps = len(one.steps)
    return (
        f"{one.sequences:,} sequences of {count(one.trained / max(1, one.sequences))} tokens in "
        f"{sum(one.steps):,} micro-batches of each replica and {steps} optimizer "
        f"step{'s' if steps != 1 else ''}, {digits(100 * one.filled)} % filled"
    )


_WIDTH: Final = 48
"""Characters of an iteration in the timeline."""


def report_tables(report: IterationReport) -> tuple[Block, ...]:
    """Everything that an iteration has to say after its verdict; warnings last."""
    return (
        _timeline(report.rounds[-1]),
        _tables_phases(report),
        _idle(report),
        _tables_kpis(report),
        memory_table(report.fits_of),
        *expectation_notes(report.expectations),
        *warning_notes(report.warnings),
    )


def _timeline(one: Round) -> Table:
    """Every phase with its GPUs, as a bar where it lies in the iteration."""
    table = headed("The last iteration", "phase", "", "GPUs", "from", "to", left=(0, 1))
    for span in one.spans:
        begin = round(_WIDTH * span.start_ns / one.length_ns)
        end = max(begin + 1, round(_WIDTH * span.end_ns / one.length_ns))
        drawn = " " * min(begin, _WIDTH - 1) + "█" * (end - begin)
        ends = (duration(ns / 1e9) for ns in (span.start_ns, span.end_ns))
        table.add_row(PHASES[span.phase], drawn, f"{span.gpus:,}", *ends)
    return table


def _tables_phases(report: IterationReport) -> Table:
    table = headed("Phases, mean of the settled iterations", "", "takes", "share", "", left=(0, 3))
    seconds = report.kpis["iteration_seconds"] or 1.0
    for phase, took in report.phases.items():
        if took:
            share = took / seconds
            table.add_row(PHASES[phase], duration(took), percent(share), bar(share))
    table.add_section()
    table.add_row("iteration", duration(seconds), "", "")
    table.caption = batch_words(report.batch)
    return table


def _idle(report: IterationReport) -> Table:
    """What GPUs do; shares sum to one."""
    table = headed("What GPUs do", "", "share", "", left=(0, 2))
    for work, share in report.busy.items():
        if share:
            table.add_row(WORKS[work], percent(share), bar(share))
    for cause, share in report.idle.items():
        if share:
            table.add_row(f"idle: {CAUSES[cause]}", percent(share), bar(share))
    return table


def _tables_kpis(report: IterationReport) -> Table:
    table = headless("Key figures", "left", "right")
    for kpi in ITERATION_KPIS:
        table.add_row(kpi.label, report.ranged(kpi))
    table.add_row("Cost of 1,000 iterations", show(report.per_thousand, "USD"))
    table.caption = IN_BRACKETS
    return table


def memory_table(fits: Sequence[Fit]) -> Table:
    """Every phase's memory against what there is."""
    table = headed("Memory, by phase", "", "takes", "of", "")
    for one in fits:
        told = "" if one.fits else "does not fit"
        table.add_row(one.name, gibibytes(one.bytes), gibibytes(one.capacity), told)
    return table


ROOTS: Final = (
    "rl.rollout.engine",
    "calibration",
    "cluster.fabric",
    "cluster.node.nic",
    "cluster.node.nvlink",
)
"""Sections whose ranges move a decode step."""


@dataclass(frozen=True, slots=True)
class Factors:
    """By how much rollouts and training may take less, and more."""

    rollout: Interval
    train: Interval


def factors(plan: IterationPlan, trace: IterationTrace) -> Factors | None:
    """How far both reach; None where no published step is like the trainer's.

    Training: as far as published steps say (`twin.reports.interval`), four of five of which lie
    inside; and as far as the tuned stack, where the software is assumed. Rollouts: no published run
    tells, so what the ranges of the engine, the calibration and the links make of a decode step
    (`twin.loading.input_ranges`): what rollouts take is steps. The update and the switches stay as
    they are. It breaks where something that no number says, such as how lengths are spread, is
    wrong.
    """
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
