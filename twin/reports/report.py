"""The Report: the answers to one run, as data. Its JSON is the public contract (README, "The JSON
report").

All numbers are SI (seconds, bytes, FLOP/s); integers of nanoseconds carry `_ns` in their name.
Everything but `provenance.created` and `provenance.wall_seconds` is a function of the scenario: the
same scenario gives the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from twin.planning.types import Warning
from twin.reports.breakdown import in_seconds
from twin.reports.cost import Bill
from twin.reports.expect import Judgement
from twin.reports.exposure import Exposure
from twin.reports.overlap import LayerOverlap
from twin.reports.verdict import verdict
from twin.sources import Kind, Source

if TYPE_CHECKING:  # simulating failures takes part in few runs
    from twin.goodput import Goodput
    from twin.reports.with_data import Generated

VERSION = 1
"""Version of the JSON document; it grows when a key changes its meaning or leaves."""

Interval = tuple[float, float]

UNCALIBRATED = frozenset(
    ("calibration-of-another-gpu", "calibration-without-fp8", "assumed-calibration")
)
"""Codes of the warnings that say that times lie outside of what was measured."""


@dataclass(frozen=True, slots=True)
class RoleBreakdown:
    """How the compute stream of one role (a pipeline stage, or a rank when all ranks are played)
    spends the step."""

    role: str
    breakdown_ns: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class StagePeak:
    """Device bytes on one rank of a stage at its peak, by category."""

    stage: int
    peak_bytes: float
    peak_moment: str
    in_flight: int
    categories: Mapping[str, float]
    kept_bytes: float = 0.0
    """Most activations that ever wait for their backward, on the device or the host."""
    host: Mapping[str, float] = field(default_factory=dict[str, float])
    """Bytes that the rank keeps in host memory, by category."""


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """The peak rank's memory by category, and every stage's, against what the device offers. All in
    bytes.

    `capacity` is what the driver exposes; `reserve` is taken by the runtime before any tensor;
    `budget` is what is left for tensors, and `fits` is judged against it. `host` is what all
    ranks of the fullest node keep in host memory, by category, of `host_capacity`."""

    peak: StagePeak
    capacity: float
    reserve: Mapping[str, float]
    budget: float
    stages: tuple[StagePeak, ...]
    host: Mapping[str, float] = field(default_factory=dict[str, float])
    host_capacity: float | None = None
    unique_bytes: float = 0.0
    """Parameters and gradients of the whole model, each once."""

    @property
    def host_per_node(self) -> float:
        """Bytes of all categories of `host`."""
        return sum(self.host.values())

    @property
    def fits_device(self) -> bool:
        """Whether the highest peak is within the budget."""
        return self.peak.peak_bytes <= self.budget

    @property
    def fits_host(self) -> bool:
        """Whether a node has room for what its ranks keep on the host."""
        return self.host_capacity is None or self.host_per_node <= self.host_capacity

    def to_json(self) -> dict[str, Any]:
        """The section of the JSON report; categories of the peak rank come first."""
        return {
            "categories": dict(self.peak.categories),
            "peak_bytes": self.peak.peak_bytes,
            "peak_moment": self.peak.peak_moment,
            "stage": self.peak.stage,
            "capacity": self.capacity,
            "reserve": dict(self.reserve),
            "budget": self.budget,
            "host": {
                "peak_bytes_per_node": self.host_per_node,
                "capacity": self.host_capacity,
                "categories": dict(self.host),
            },
            "kept_bytes": max(stage.kept_bytes for stage in self.stages),
            "unique_bytes": self.unique_bytes,
            "stages": [asdict(stage) for stage in self.stages],
        }


@dataclass(frozen=True, slots=True)
class LinkUse:
    """One class of link, mean of the roles: bytes carried over the step, and the share of its
    capacity used (0 to 1)."""

    bytes: float
    use: float


@dataclass(frozen=True, slots=True)
class CatalogUse:
    """Where the scenario's catalog numbers come from: a digest of all of them with their sources,
    how many there are of each kind, and the cited works."""

    digest: str
    numbers: Mapping[Kind, int]
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the answer came from, and the command that gives it again (None where there is
    none)."""

    twin_version: str
    created: str
    wall_seconds: float | None
    calibration: str
    fidelity: str
    events: int
    played_microbatches: int
    microbatches: int
    catalog: CatalogUse
    reproduce: str | None


@dataclass(frozen=True, slots=True)
class Report:
    """The answers to one run."""

    name: str
    scenario: Mapping[str, Any]
    """The resolved scenario as a planner would write it: quantities are text with units."""
    tokens: int
    """Tokens of the whole run."""
    hash: str
    fits: bool
    kpis: Mapping[str, float | None]
    intervals: Mapping[str, Interval | None]
    """80 % interval per key figure; None where there is none, and a warning says why."""
    step_ns: int
    breakdown_ns: Mapping[str, int]
    """Mean over ranks; sums to `step_ns` exactly."""
    roles: tuple[RoleBreakdown, ...]
    memory: MemoryReport
    links: Mapping[str, LinkUse]
    extrapolated_fraction: float
    speed_of_light_seconds: float
    """The busiest stage's kernels at the hardware's peak, with no launch, communication or bubble:
    no schedule of this layout is faster."""
    warnings: tuple[Warning, ...]
    provenance: Provenance
    expectations: tuple[Judgement, ...] = ()
    """What the scenario expects, in its order."""
    exposure: Mapping[str, Exposure] = field(default_factory=dict[str, Exposure])
    """Every exposed cause of the breakdown in its ramp and in its steady state; empty where the
    trace does not tell them apart."""
    overlap: tuple[LayerOverlap, ...] = ()
    """Per kind of layer: the window of its kernels and what its all-to-all asks of the links."""
    bill: Bill = field(default_factory=Bill)
    """Watts, energy and dollars by part, and why a key figure is None."""
    goodput: Goodput | None = None
    """What failures leave of the time; None where the scenario says nothing of them."""
    generated: Generated | None = None
    """What generating its data takes, before; None where nothing is generated."""

    @property
    def uncalibrated(self) -> tuple[Warning, ...]:
        """Why the times lie outside of what was measured; empty where they do not."""
        return tuple(one for one in self.warnings if one.code in UNCALIBRATED)

    def to_json(self) -> dict[str, Any]:
        """The report as one JSON document of plain data (the public contract)."""
        return {
            "version": VERSION,
            "name": self.name,
            "hash": self.hash,
            "fits": self.fits,
            "verdict": verdict(self),
            "kpis": dict(self.kpis),
            "intervals": {k: list(v) if v else None for k, v in self.intervals.items()},
            "step_ns": self.step_ns,
            "breakdown_ns": dict(self.breakdown_ns),
            "breakdown": in_seconds(self.breakdown_ns),
            "exposure": {cause: one.to_json() for cause, one in self.exposure.items()},
            "roles": [_role_json(role) for role in self.roles],
            "memory": self.memory.to_json(),
            "cost_breakdown": None if self.bill.cost is None else dict(self.bill.cost),
            "energy": self.bill.energy_json(),
            "goodput": self.goodput.to_json() if self.goodput else None,
            "generated": self.generated.to_json() if self.generated else None,
            "unknown": dict(self.bill.unknown),
            "links": {name: asdict(use) for name, use in self.links.items()},
            "overlap": [one.to_json() for one in self.overlap],
            "extrapolated_fraction": self.extrapolated_fraction,
            "speed_of_light_seconds": self.speed_of_light_seconds,
            "calibrated": not self.uncalibrated,
            "expectations": [asdict(one) for one in self.expectations],
            "warnings": [asdict(warning) for warning in self.warnings],
            "scenario": dict(self.scenario),
            "provenance": asdict(self.provenance),
        }


def _role_json(role: RoleBreakdown) -> dict[str, Any]:
    ns = dict(role.breakdown_ns)
    return {"role": role.role, "breakdown_ns": ns, "breakdown": in_seconds(ns)}
