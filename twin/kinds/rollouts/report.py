"""Plan and traces of rollouts to their report: how long an iteration's take, where engines spend
it, how long the tail is, and what partial rollouts gain over waiting for the last request.

What to know of the times of an engine before one relies on them: where they lie outside of what
was measured.

Rollouts as tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from twin.inference.engine import Engine
from twin.inference.kv_capacity import KvCapacity, room
from twin.kinds.rollouts.plan import (
    NAME,
    SPENT,
    BothTraces,
    Place,
    RolloutIteration,
    RolloutPlan,
    RolloutTrace,
    Spent,
)
from twin.loading import scenario_hash
from twin.planning.caveats import assumed_numbers, some
from twin.planning.types import Warning
from twin.reports.compare import FieldDifference
from twin.reports.cost import hourly
from twin.reports.head import FITS, UNTIMED, Head, RunInfo, expectation_notes, judge, provenance
from twin.reports.summary import catalog_use, resolved
from twin.reports.table import (
    Block,
    Table,
    count,
    digits,
    duration,
    gibibytes,
    headed,
    headless,
    warning_notes,
)
from twin.scenario import Scenario
from twin.spec.kpis import OF_SERVING, ROLLOUT_KPIS


def caveats(scenario: Scenario, server: Engine) -> Iterable[Warning]:
    """Of the engine that a scenario's rollouts run on; numbers outside of `rl` are told by the
    plan (`twin.planning.caveats`)."""
    profile, gpu = server.calibration, server.cluster.node.gpu.name
    if profile.gpu != gpu:
        text = (
            f"Calibration {profile.name} of the engine was measured on {profile.gpu}, not on "
            f"{gpu}: times of rollouts are extrapolated."
        )
        yield Warning("calibration-of-another-gpu", text)
    measured = profile.matmuls is not None and profile.matmuls.fp8 is not None
    if server.spec.precision == "fp8" and not measured:
        text = (
            f"Calibration {profile.name} of the engine has no FP8 GEMMs. They are assumed to reach "
            "the same shares of peak as bf16. Block-scaled kernels reach less, so real passes take "
            "longer."
        )
        yield Warning("calibration-without-fp8", text)
    names = sorted(
        path
        for path, number in scenario.ledger.items()
        if number.kind == "assumed" and path.startswith("rl.")
    )
    if names:
        text = f"Assumed, neither measured nor fitted: {some(names)}. Times depend on them."
        yield Warning("assumed-calibration", text)


SHOWN: Final = 200
"""Moments of a timeline in the document."""
NO_INTERVAL: Final = Warning(
    "no-interval",
    "No key figure has an interval: no published rollouts say how far they may be off.",
)
_WORK: Final = (
    "model",
    "rl.rollout.model",
    "rl.rollout.requests",
    "rl.rollout.prompt",
    "rl.rollout.written",
    "rl.rollout.turns",
    "rl.rollout.read",
    "rl.rollout.partial",
    "rl.rollout.arrivals",
)
"""What is written in an iteration, and by whom; partial rollouts leave requests to the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutReport(Head):
    """What rollouts came to. Engines without room for the longest request are refused, so they
    always fit."""

    kind: ClassVar[str] = NAME

    trace: RolloutTrace
    patient: RolloutTrace | None
    """The same without partial rollouts; None where there are none to leave out."""
    place: Place
    gpus: int
    room: KvCapacity

    @property
    def verdict(self) -> str:
        """How long an iteration's rollouts take, and why, in a sentence or two."""
        if self.serves:
            return self._served_verdict
        said = (
            f"Rollouts of an iteration take {duration(self.seconds)} on {self.gpus:,} GPUs, "
            f"{count(self.tokens_per_second)} tokens per second; {digits(100 * self.tail)} % of "
            "that passes after nine of ten requests are done."
        )
        if self.gain is None:
            return said
        return f"{said} Partial rollouts write {digits(self.gain)} times as many tokens per second."

    @property
    def _served_verdict(self) -> str:
        said = _served(self)
        first, further = said["first_token_seconds"]["90%"], said["next_token_seconds"]
        then = "" if further is None else f", each further one after {duration(further)}"
        rate = f"{said['requests_per_second']:.3g} requests per second"
        return (
            f"{rate} are done on {self.gpus:,} GPUs. "
            f"Nine of ten have their first token within {duration(first)}{then}."
        )

    @property
    def serves(self) -> bool:
        """Whether times of single tokens count (`serves`)."""
        return serves(self.place)

    @property
    def seconds(self) -> float:
        """Seconds of an iteration's rollouts, mean of the settled ones."""
        return _mean_ns(settled(self.trace)) / 1e9

    @property
    def tokens_per_second(self) -> float:
        """Tokens that are written per second, of the settled iterations."""
        return _rate(settled(self.trace))

    @property
    def spent(self) -> dict[Spent, float]:
        """Shares of the engines' time; they sum to one."""
        return _spent(settled(self.trace))

    @property
    def tail(self) -> float:
        """Share of the time that passes after nine of ten requests are done."""
        return _tail(settled(self.trace))

    @property
    def gain(self) -> float | None:
        """How many times as many tokens per second partial rollouts write; None without them."""
        if self.patient is None:
            return None
        return self.tokens_per_second / _rate(settled(self.patient))

    def body(self) -> dict[str, Any]:
        """What only rollouts have."""
        return {
            "rollout_seconds": self.seconds,
            "tokens_per_second": self.tokens_per_second,
            "tokens_per_second_per_gpu": self.tokens_per_second / self.gpus,
            "idle_fraction": self.spent["idle"],
            "spent": self.spent,
            "partial_gain": self.gain,
            "engines": self.place.engines,
            "gpus": self.gpus,
            "memory": self.room.to_json(),
            **({"serving": _served(self)} if self.serves else {}),
            "events": self.trace.events,
            "iterations": [_iteration(one) for one in self.trace.iterations],
            "without_partial": _patient(self.patient),
        }


def report(plan: RolloutPlan, traces: BothTraces, run: RunInfo = UNTIMED) -> RolloutReport:
    """The answers to rollouts, in their steady state."""
    scenario, trace = plan.scenario, traces.trace
    kpis = _kpis(plan, settled(trace))
    return RolloutReport(
        name=scenario.name,
        hash=scenario_hash(scenario),
        scenario=resolved(scenario),
        fits=True,
        kpis=kpis,
        intervals={kpi.key: None for kpi in ROLLOUT_KPIS},
        warnings=(*assumed_numbers(scenario), *caveats(scenario, plan.server), NO_INTERVAL),
        expectations=judge(scenario.expect, {FITS: True} | kpis),
        provenance=provenance(
            scenario.calibration.name, "events", trace.events, catalog_use(scenario.ledger), run
        ),
        trace=trace,
        patient=traces.patient,
        place=plan.place,
        gpus=plan.gpus,
        room=room(plan.server),
    )


def _kpis(plan: RolloutPlan, later: Sequence[RolloutIteration]) -> dict[str, float | None]:
    """The key figures (`twin.spec.kpis.ROLLOUT_KPIS`)."""
    scenario, seconds, rate = plan.scenario, _mean_ns(later) / 1e9, _rate(later)
    prices = hourly(scenario.cost, scenario.cluster.node) if scenario.cost else {}
    hours = plan.gpus * seconds / 3600
    return {
        "rollout_seconds": seconds,
        "tokens_per_second": rate,
        "tokens_per_second_per_gpu": rate / plan.gpus,
        "tail_share": _tail(later),
        "idle_share": _spent(later)["idle"],
        "cost_usd_of_rollouts": hours * sum(prices.values()) if prices else None,
        "first_token_seconds": first_token(later, 90) if serves(plan.place) else None,
        "next_token_seconds": next_token(later) if serves(plan.place) else None,
    }


def serves(place: Place) -> bool:
    """Whether requests come one by one, or other engines prefill."""
    return place.arrivals is not None or place.prefills is not None


def first_token(later: Sequence[RolloutIteration], percent: float) -> float:
    """Seconds within which so many of a hundred requests have their first token."""
    return float(np.percentile([ns for one in later for ns in one.first_ns] or [0], percent)) / 1e9


def next_token(later: Sequence[RolloutIteration]) -> float | None:
    """Seconds from a token to the next, mean of the requests of one turn; None without any."""
    found = [ns for one in later for ns in one.next_ns]
    return sum(found) / len(found) / 1e9 if found else None


def _served(report: RolloutReport) -> dict[str, Any]:
    """Times of tokens, and what each pool does per GPU and second."""
    later, pool = settled(report.trace), report.place.prefills
    rate, count = _steady(later), max(1, sum(len(one.first_ns) for one in later))
    found: dict[str, Any] = {
        "requests_per_second": rate,
        "first_token_seconds": {f"{n}%": first_token(later, n) for n in (50, 90, 99)},
        "next_token_seconds": next_token(later),
    }
    if pool is None:
        return found
    prompts, written = (sum(getattr(one, key) for one in later) for key in ("prefilled", "written"))
    whole, busy = sum(one.length_ns for one in later), sum(one.pool_ns for one in later)
    return found | {
        "prefill_gpus": pool.gpus,
        "prefill_busy_share": busy / whole / pool.engines,
        "prompt_tokens_per_second_per_prefill_gpu": rate * prompts / count / pool.gpus,
        "decode_gpus": report.gpus - pool.gpus,
        "decode_busy_share": report.spent["decode"],
        "tokens_per_second_per_decode_gpu": rate * written / count / (report.gpus - pool.gpus),
        "cache_moves_seconds": sum(one.moving_ns for one in later) / 1e9 / count,
    }


def _steady(later: Sequence[RolloutIteration]) -> float:
    """Requests per second that are done from the first quarter of them to the last, so that neither
    empty engines at the begin nor those at the end count."""
    done = seconds = 0.0
    for one in later:
        first, last = one.at(0.25), one.at(0.75)
        if first is not None and last is not None and last > first:
            done += 0.5 * len(one.done_ns)
            seconds += (last - first) / 1e9
    return done / seconds if seconds else 0.0


def _spent(later: Sequence[RolloutIteration]) -> dict[Spent, float]:
    whole = sum(sum(one.spent_ns.values()) for one in later)
    parts: dict[Spent, int] = {key: sum(one.spent_ns[key] for one in later) for key in SPENT}
    return {key: part / whole if whole else 0.0 for key, part in parts.items()}


def _tail(later: Sequence[RolloutIteration]) -> float:
    length = sum(one.length_ns for one in later)
    return sum(one.tail * one.length_ns for one in later) / length if length else 0.0


def is_other_work(paths: Iterable[str]) -> bool:
    """Whether rollouts that differ in these fields do not write the same."""
    return any(path == one or path.startswith(f"{one}.") for path in paths for one in _WORK)


def other_work(fields: Iterable[FieldDifference]) -> tuple[Warning, ...]:
    """That rollouts with these differences do not write the same, where they do not."""
    if not is_other_work(field.path for field in fields):
        return ()
    message = "Not the same is written in an iteration: compare tokens per second, not seconds."
    return (Warning("different-work", message),)


def settled(trace: RolloutTrace) -> tuple[RolloutIteration, ...]:
    """The later half of the iterations: the first has nothing to go on with."""
    return trace.iterations[len(trace.iterations) // 2 :]


def _mean_ns(iterations: Sequence[RolloutIteration]) -> float:
    return sum(one.length_ns for one in iterations) / len(iterations)


def _rate(iterations: Sequence[RolloutIteration]) -> float:
    length = sum(one.length_ns for one in iterations)
    return 1e9 * sum(one.written for one in iterations) / length if length else 0.0


def _iteration(one: RolloutIteration) -> dict[str, Any]:
    step = max(1, -(-len(one.loads) // SHOWN))
    loads = one.loads[::step]
    return {
        "seconds": one.length_ns / 1e9,
        "done": len(one.done_ns),
        "carried": one.carried,
        "written_tokens": one.written,
        "prefilled_tokens": one.prefilled,
        "again_tokens": one.again,
        "tail": one.tail,
        "done_seconds": {f"{share:.0%}": _seconds(one.at(share)) for share in (0.5, 0.9, 0.99, 1)},
        "spent_seconds": {key: ns / 1e9 for key, ns in one.spent_ns.items()},
        "timeline": {
            "seconds": [(load.ns - one.begin_ns) / 1e9 for load in loads],
            "running": [load.running for load in loads],
            "waiting": [load.waiting for load in loads],
            "queued": [load.queued for load in loads],
        },
    }


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9


def _patient(trace: RolloutTrace | None) -> dict[str, Any] | None:
    if trace is None:
        return None
    later = settled(trace)
    return {"rollout_seconds": _mean_ns(later) / 1e9, "tokens_per_second": _rate(later)}


_MOMENTS: Final = 12
"""Rows of the timeline."""
_WIDTH: Final = 30
"""Characters of a full bar."""


def report_tables(report: RolloutReport) -> tuple[Block, ...]:
    """Everything that rollouts have to say after their verdict; warnings last."""
    return (
        _iterations(report),
        _tables_spent(report),
        *((_tables_serving(report),) if report.serves else ()),
        _tables_kpis(report),
        _timeline(report),
        *expectation_notes(report.expectations),
        *warning_notes(report.warnings),
    )


def _iterations(report: RolloutReport) -> Table:
    heads = ("", "takes", "done", "paused", "half", "90 %", "99 %", "tok/s", "prefilled")
    table = headed("Iterations", *heads, "of it again")
    for number, one in enumerate(report.trace.iterations, 1):
        table.add_row(
            str(number),
            duration(one.length_ns / 1e9),
            f"{len(one.done_ns):,}",
            f"{one.carried:,}",
            *(_at(one, share) for share in (0.5, 0.9, 0.99)),
            count(one.tokens_per_second),
            count(one.prefilled),
            count(one.again),
        )
    place, room = report.place, report.room
    table.caption = (
        f"{place.engines} engines with room for {count(place.tokens)} tokens each, "
        f"{gibibytes(max(0.0, room.cache))} of every GPU; half, 90 %, 99 %: when so many of the "
        "requests were done"
    )
    return table


def _at(one: RolloutIteration, share: float) -> str:
    ns = one.at(share)
    return "-" if ns is None else duration(ns / 1e9)


def _tables_spent(report: RolloutReport) -> Table:
    table = headed("What engines do", "", "share")
    for key, part in report.spent.items():
        table.add_row(SPENT[key], f"{100 * part:.1f} %")
    return table


def _tables_kpis(report: RolloutReport) -> Table:
    table = headless("Key figures, of the later half of the iterations", "left", "right")
    for kpi in ROLLOUT_KPIS:
        if report.serves or kpi.key not in OF_SERVING:
            table.add_row(kpi.label, report.ranged(kpi))
    return table


def _tables_serving(report: RolloutReport) -> Table:
    """Times of tokens; of two pools, how busy each is and what its GPUs do."""
    table, said = headless("Requests as their users see them", "left", "right"), _served(report)
    table.add_row("requests done per second", f"{said['requests_per_second']:.3g}")
    for share, seconds in said["first_token_seconds"].items():
        table.add_row(f"first token after, {share} of requests", duration(seconds))
    if said["next_token_seconds"] is not None:
        table.add_row("each further token after", duration(said["next_token_seconds"]))
    if report.place.prefills is None:
        return table
    for pool, rate, word in (("prefill", "prompt_tokens", "read"), ("decode", "tokens", "written")):
        table.add_row(f"GPUs of the pool: {pool}", f"{said[f'{pool}_gpus']:,}")
        table.add_row("  at work", f"{100 * said[f'{pool}_busy_share']:.1f} % of the time")
        number = said[f"{rate}_per_second_per_{pool}_gpu"]
        table.add_row(f"  tokens {word} per second and GPU", count(number))
    table.add_row("a cache is on its way for", duration(said["cache_moves_seconds"]))
    return table


def _timeline(report: RolloutReport) -> Table:
    """The last iteration: requests that are written at even moments."""
    last = report.trace.iterations[-1]
    heads = ("after", "written", "wait", "queue", "")
    table = headed("The last iteration", *heads, left=(0, 4))
    most = max((load.running for load in last.loads), default=0)
    at = 0
    for moment in range(_MOMENTS):
        ns = last.begin_ns + moment * last.length_ns // _MOMENTS
        while at + 1 < len(last.loads) and last.loads[at + 1].ns <= ns:
            at += 1
        load = last.loads[at]
        bar = "█" * round(_WIDTH * load.running / most) if most else ""
        cells = (load.running, load.waiting, load.queued)
        table.add_row(duration((ns - last.begin_ns) / 1e9), *(f"{n:,}" for n in cells), bar)
    return table
