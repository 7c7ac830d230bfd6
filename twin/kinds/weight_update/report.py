"""Plan and trace of an update to its report: how long, why, and what it takes of links and memory.
`to_json` is the document that `twin run --json` prints for a weight update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

from twin.kinds.weight_update.bound import Bound, bound
from twin.kinds.weight_update.types import NAME, Link, Stage, UpdateMemory, UpdatePlan, UpdateTrace
from twin.kinds.weight_update.verdict import verdict
from twin.loading import scenario_hash
from twin.planning.types import Warning
from twin.reports.cost import NO_PRICE, hourly
from twin.reports.expect import FITS, judge
from twin.reports.head import UNTIMED, Head, RunInfo, provenance
from twin.reports.report import LinkUse
from twin.reports.summary import catalog_use, resolved
from twin.spec.kpis import UPDATE_KPIS

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
