"""Plan and trace of an update to its report: how long, why, and what it takes of links and memory.
`to_json` is the document that `twin run --json` prints for a weight update.

What an update waits for most, and what that in turn is bound by.

The verdict on an update: does it fit, how long, and what takes the time.

A weight update as tables.

The same update by other pipelines: two stages or three, broadcast or point to point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from twin.kinds.weight_update.lower import Wires
from twin.kinds.weight_update.plan import NAME, Link, Stage, UpdateMemory, UpdatePlan, UpdateTrace
from twin.loading import scenario_hash
from twin.loading.files import table
from twin.planning.types import Warning
from twin.reports.cost import NO_PRICE, hourly
from twin.reports.head import FITS, UNTIMED, Head, RunInfo, judge, provenance
from twin.reports.report import LinkUse
from twin.reports.summary import catalog_use, resolved
from twin.reports.table import digits, duration, gibibytes
from twin.spec.kpis import UPDATE_KPIS

if TYPE_CHECKING:
    from twin.kinds.weight_update.plan import UpdateMemory
from collections.abc import Sequence

from twin.errors import ScenarioError
from twin.kinds.weight_update.lower import lower
from twin.kinds.weight_update.plan import plan
from twin.kinds.weight_update.simulate import simulate
from twin.reports.table import Block, Table, bar, changed, headed, percent, warning_notes
from twin.scenario import UpdateScenario

WORDS: Final[dict[Stage, str]] = table(__name__, "WORDS")
"""The stages as sentences name them."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The stage that takes the most of the update, its share of it (0 to 1), and what holds it
    up."""

    stage: Stage
    share: float
    reason: str


def bound(plan: UpdatePlan, trace: UpdateTrace) -> Bound:
    """What bounds an update."""
    stage = max(trace.breakdown_ns, key=lambda one: trace.breakdown_ns[one])
    share = trace.breakdown_ns[stage] / trace.update_ns if trace.update_ns else 0.0
    return Bound(stage, share, _reason(plan, stage))


def _reason(plan: UpdatePlan, stage: Stage) -> str:
    updater = plan.scenario.weight_update.updater
    link, rate = Wires(plan).broadcast_rate()
    if updater.in_place is not None:
        link, rate = "trainers on the same GPUs", updater.in_place
    each = updater.each_tensor(plan.scenario.model.layers)
    return {
        "regroup": "the software's own time",
        "read": "the rate of the storage",
        "host_copy": "PCIe and host memory",
        "fetch": "the NICs of the ranks that receive",
        "broadcast": f"{link} carry {digits(rate / 1e9)} GB/s of it",
        "send": "the NICs of the ranks that receive",
        "handover": f"{digits(updater.hop * 1e6)} us per rank and bucket",
        "reload": f"{digits(each * 1e6)} us of host time per tensor",
    }[stage]


_DONE: Final = {
    "update": "the new weights are in all {instances} after {time}",
    "start": "all {instances} have started after {time}",
    "recover": "one instance is back after {time}",
}


def verdict(report: UpdateReport) -> str:
    """Plain sentences that answer the planner's questions."""
    travel, kpis = report.travel, report.kpis
    many = f"{travel.instances:,} instances" if travel.instances > 1 else "GPUs of the instance"
    done = _DONE[travel.event].format(instances=many, time=duration(report.update_ns / 1e9))
    rate = digits((kpis["bytes_per_second"] or 0.0) / 1e9)
    answer = (
        f"{done[0].upper()}{done[1:]}: {decimal(travel.checkpoint_bytes)} on "
        f"{travel.gpus:,} GPUs, {rate} GB/s. {_losses(report)}"
    )
    if report.fits:
        return f"{fitting(report.memory)} {answer}"
    return f"{fitting(report.memory)} If it did fit: {answer[0].lower()}{answer[1:]}"


def fitting(memory: UpdateMemory) -> str:
    """Does it fit: the room left on the device, or what is too large."""
    if memory.host_bytes > memory.host_capacity:
        return (
            f"Does not fit: the shares of the checkpoint take {gibibytes(memory.host_bytes)} of a "
            f"node's {gibibytes(memory.host_capacity)} of host memory."
        )
    over = memory.device_bytes - memory.budget
    if over <= 0:
        return f"Fits with {gibibytes(-over)} to spare on each GPU."
    parts = ", ".join(f"{name} {gibibytes(size)}" for name, size in memory.categories.items())
    return (
        f"Does not fit: {parts} are {gibibytes(over)} more than the GPU's "
        f"{gibibytes(memory.budget)}."
    )


def decimal(size: float) -> str:
    """Bytes of a checkpoint, as people tell the size of files: `1.03 TB`."""
    return f"{digits(size / 1e12)} TB" if size >= 1e12 else f"{digits(size / 1e9)} GB"


def _losses(report: UpdateReport) -> str:
    bound = report.bound
    name = WORDS[bound.stage]
    return (
        f"{name[0].upper()}{name[1:]} take {digits(100 * bound.share)} % of the time: "
        f"{bound.reason}."
    )


NO_INTERVAL: Final = Warning(
    "no-interval",
    "No key figure has an interval: four measured updates and four recoveries of two models say "
    "too little of how far it may be off.",
)
UNMEASURED: Final = frozenset(
    (
        "updater-of-another-gpu",
        "ideal-p2p",
        "unmeasured-three-stages",
        "unmeasured-start",
        "beyond-fitted-ranks",
    )
)
"""Codes of the warnings that say that times lie outside of what was measured."""


@dataclass(frozen=True, slots=True)
class StageUse:
    """One stage of an update: seconds in which any rank was at it, and those that made the update
    longer because nothing else was in the way."""

    busy_seconds: float
    exposed_seconds: float


@dataclass(frozen=True, slots=True)
class Travel:
    """What travels, and how: bytes of the checkpoint, of a bucket's buffer, and those that each
    rank receives and keeps."""

    event: str
    method: str
    stages: str
    gpus: int
    instances: int
    tensors: int
    checkpoint_bytes: int
    buffer_bytes: int
    buffers: int
    buckets: int
    rounds: int
    received_bytes: float
    held_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport(Head):
    """The answers to one weight update."""

    kind: ClassVar[str] = NAME
    uncalibrated_codes: ClassVar[frozenset[str]] = UNMEASURED

    update_ns: int
    breakdown_ns: Mapping[Stage, int]
    """What made the update as long as it is; sums to `update_ns` exactly."""
    stages: Mapping[Stage, StageUse]
    travel: Travel
    bound: Bound
    memory: UpdateMemory
    links: Mapping[Link, LinkUse]

    @property
    def verdict(self) -> str:
        """Does it fit, how long, and what takes the time."""
        return verdict(self)

    def body(self) -> dict[str, Any]:
        """What only an update has."""
        memory = self.memory
        return {
            "update_ns": self.update_ns,
            "breakdown_ns": dict(self.breakdown_ns),
            "breakdown": {stage: ns / 1e9 for stage, ns in self.breakdown_ns.items()},
            "stages": {stage: asdict(use) for stage, use in self.stages.items()},
            "travel": asdict(self.travel),
            "bound": asdict(self.bound),
            "memory": {
                "categories": dict(memory.categories),
                "device_bytes": memory.device_bytes,
                "capacity": memory.capacity,
                "reserve": dict(memory.reserve),
                "budget": memory.budget,
                "host_bytes_per_node": memory.host_bytes,
                "host_capacity": memory.host_capacity,
            },
            "links": {link: asdict(use) for link, use in self.links.items()},
        }


def report(plan: UpdatePlan, trace: UpdateTrace, run: RunInfo = UNTIMED) -> UpdateReport:
    """The answers to an update."""
    scenario = plan.scenario
    assert sum(trace.breakdown_ns.values()) == trace.update_ns, "the breakdown must sum up"
    figures = _kpis(plan, trace)
    return UpdateReport(
        name=scenario.name,
        scenario=resolved(scenario),
        hash=scenario_hash(scenario),
        fits=plan.memory.fits,
        kpis=figures,
        intervals={kpi.key: None for kpi in UPDATE_KPIS},
        update_ns=trace.update_ns,
        breakdown_ns=trace.breakdown_ns,
        stages={
            stage: StageUse(trace.busy_ns[stage] / 1e9, trace.breakdown_ns[stage] / 1e9)
            for stage in trace.busy_ns
        },
        travel=_travel(plan),
        bound=bound(plan, trace),
        memory=plan.memory,
        links={
            link: LinkUse(size, trace.link_busy[link]) for link, size in trace.link_bytes.items()
        },
        warnings=(
            *plan.warnings,
            *([NO_PRICE] if figures["cost_usd"] is None else []),
            NO_INTERVAL,
        ),
        provenance=provenance(
            scenario.calibration.name,
            "events",
            trace.events,
            catalog_use(scenario.ledger),
            run,
            updater=scenario.weight_update.updater.name,
        ),
        expectations=judge(scenario.expect, {FITS: plan.memory.fits, **figures}),
    )


def _kpis(plan: UpdatePlan, trace: UpdateTrace) -> dict[str, float | None]:
    scenario, seconds = plan.scenario, trace.update_ns / 1e9
    gpu_hours = plan.takers * seconds / 3600
    # Without energy: nobody has published what a GPU draws while weights are copied.
    prices = hourly(scenario.cost, scenario.cluster.node) if scenario.cost else {}
    return {
        "update_seconds": seconds,
        "gather_seconds": scenario.weight_update.updater.gather,
        "bytes_per_second": plan.payload / seconds,
        "peak_device_bytes": plan.memory.device_bytes,
        "peak_host_bytes_per_node": plan.memory.host_bytes,
        "gpu_hours": gpu_hours,
        "cost_usd": sum(gpu_hours * one for one in prices.values()) if prices else None,
    }


def _travel(plan: UpdatePlan) -> Travel:
    update = plan.scenario.weight_update
    return Travel(
        event=update.event,
        method=update.method,
        stages=update.stages,
        gpus=plan.takers,
        instances=plan.instances,
        tensors=plan.tensors,
        checkpoint_bytes=plan.payload,
        buffer_bytes=plan.buffers.bytes,
        buffers=plan.buffers.count,
        buckets=len(plan.buckets),
        rounds=plan.rounds,
        received_bytes=plan.received,
        held_bytes=plan.held,
    )


_METHODS: Final = ("broadcast", "p2p")
_STAGES: Final = ("two", "three")


@dataclass(frozen=True, slots=True)
class Alternative:
    """One pipeline: how long it takes, whether its buffers fit, and how many times longer it takes
    than the one that was asked about, less one (None: this is it)."""

    method: str
    stages: str
    seconds: float
    change: float | None
    fits: bool


def alternatives(scenario: UpdateScenario, report: UpdateReport) -> tuple[Alternative, ...]:
    """Every pipeline that the event allows, the asked one among them."""
    found: list[Alternative] = []
    for method in _METHODS:
        for stages in _STAGES:
            if (method, stages) == (report.travel.method, report.travel.stages):
                seconds = report.update_ns / 1e9
                found.append(Alternative(method, stages, seconds, None, report.fits))
            elif one := _other(scenario, method, stages, report.update_ns / 1e9):
                found.append(one)
    return tuple(found)


def _other(scenario: UpdateScenario, method: str, stages: str, now: float) -> Alternative | None:
    """Another pipeline; None where there is none."""
    update = scenario.weight_update.model_copy(update={"method": method, "stages": stages})
    try:
        made = plan(scenario.model_copy(update={"weight_update": update}))
    except ScenarioError:
        return None
    seconds = simulate(lower(made)).update_ns / 1e9
    return Alternative(method, stages, seconds, seconds / now - 1, made.memory.fits)


def report_tables(report: UpdateReport, others: Sequence[Alternative]) -> tuple[Block, ...]:
    """Everything that an update has to say after its verdict; warnings last."""
    return (
        _stage_table(report),
        *([_alternative_table(others)] if others else []),
        _kpi_table(report),
        _link_table(report),
        *warning_notes(report.warnings),
    )


def _stage_table(report: UpdateReport) -> Table:
    """Where the time goes; the rows of the first column of times sum to the update."""
    table = headed("Where the update goes", "stage", "takes", "share", "", "at work", left=(0, 3))
    for stage, ns in report.breakdown_ns.items():
        use = report.stages[stage]
        if use.busy_seconds:
            share = ns / report.update_ns
            table.add_row(
                WORDS[stage],
                duration(ns / 1e9),
                percent(share),
                bar(share),
                duration(use.busy_seconds),
            )
    table.add_section()
    table.add_row("update", duration(report.update_ns / 1e9), percent(1.0), "", "")
    return table


def _alternative_table(others: Sequence[Alternative]) -> Table:
    """The same update by other pipelines."""
    table = headed("By other pipelines", "method", "stages", "update", "change", "")
    for one in others:
        change = "" if one.change is None else changed(one.seconds, one.change, "s")
        told = "links' bound, unmeasured" if one.method == "p2p" else ""
        told = told if one.fits else "does not fit"
        table.add_row(one.method, one.stages, duration(one.seconds), change, told)
    return table


def _kpi_table(report: UpdateReport) -> Table:
    table = headed("Key figures", "", "")
    for kpi in UPDATE_KPIS:
        table.add_row(kpi.label, report.ranged(kpi))
    travel = report.travel
    table.add_row("Checkpoint", decimal(travel.checkpoint_bytes))
    table.add_row("Tensors", f"{travel.tensors:,}")
    table.add_row("Buckets, in rounds", f"{travel.buckets:,}, {travel.rounds}")
    table.add_row("Buffers", f"{travel.buffers} of {gibibytes(travel.buffer_bytes)}")
    table.add_row("Each GPU receives", gibibytes(travel.received_bytes))
    table.add_row("Each GPU keeps", gibibytes(travel.held_bytes))
    return table


def _link_table(report: UpdateReport) -> Table:
    table = headed("Links (mean of all of a class)", "", "bytes", "use", "", left=(0, 3))
    for link, use in report.links.items():
        table.add_row(link, gibibytes(use.bytes), percent(use.use), bar(use.use))
    return table


def travel_table(plan: UpdatePlan) -> Table:
    """What an update moves, and what it takes on the device and the host."""
    table = headed("What travels", "", "")
    table.add_row("Checkpoint", f"{decimal(plan.payload)} in {plan.tensors:,} tensors")
    table.add_row("Buckets, in rounds", f"{len(plan.buckets):,}, {plan.rounds}")
    table.add_row("Buffers", f"{plan.buffers.count} of {gibibytes(plan.buffers.bytes)}")
    for name, size in plan.memory.categories.items():
        table.add_row(f"Device: {name}", gibibytes(size))
    table.add_row("Device: has for tensors", gibibytes(plan.memory.budget))
    table.add_row("Host: shares of the checkpoint", gibibytes(plan.memory.host_bytes))
    return table
