"""Plan and trace of an update to its report: how long, why, and what it takes of links and memory.
`to_json` is the document that `twin run --json` prints for a weight update.

What an update waits for most, and what that in turn is bound by.

The verdict on an update: does it fit, how long, and what takes the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from twin.kinds.weight_update.link_map import Wires
from twin.kinds.weight_update.types import NAME, Link, Stage, UpdateMemory, UpdatePlan, UpdateTrace
from twin.loading import scenario_hash
from twin.planning.types import Warning
from twin.reports.cost import NO_PRICE, hourly
from twin.reports.expect import FITS, judge
from twin.reports.head import UNTIMED, Head, RunInfo, provenance
from twin.reports.numbers import digits, duration, gibibytes
from twin.reports.report import LinkUse
from twin.reports.summary import catalog_use, resolved
from twin.spec.kpis import UPDATE_KPIS

if TYPE_CHECKING:
    from twin.kinds.weight_update.types import UpdateMemory


WORDS: Final[dict[Stage, str]] = {
    "regroup": "joining the group",
    "read": "reading from storage",
    "host_copy": "copies from the host",
    "fetch": "reading other hosts' copies",
    "broadcast": "broadcasts",
    "send": "sending",
    "handover": "handing over buckets",
    "reload": "reloading in the engine",
}
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
    return {
        "regroup": "the software's own time",
        "read": "the rate of the storage",
        "host_copy": "PCIe and host memory",
        "fetch": "the NICs of the ranks that receive",
        "broadcast": f"{link} carry {digits(rate / 1e9)} GB/s of it",
        "send": "the NICs of the ranks that receive",
        "handover": f"{digits(updater.hop * 1e6)} us per rank and bucket",
        "reload": f"{digits(updater.per_tensor * 1e6)} us of host time per tensor",
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
