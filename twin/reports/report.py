"""The Report: the answers to one run, as data. Its JSON is the public contract (README, "The JSON
report").

All numbers are SI (seconds, bytes, FLOP/s); integers of nanoseconds carry `_ns` in their name.
Everything but `provenance.created` and `provenance.wall_seconds` is a function of the scenario: the
same scenario gives the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from twin.planning.types import DeviceMemory
from twin.reports.breakdown import Exposure, in_seconds
from twin.reports.cost import Bill
from twin.reports.head import Head, Judgement
from twin.reports.interval import Correction
from twin.reports.overlap import LayerOverlap
from twin.reports.verdict import verdict

if TYPE_CHECKING:  # simulating failures takes part in few runs
    from twin.goodput import Goodput
    from twin.reports.cost import Generated
    from twin.reports.uneven import Uneven


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
    `budget` is what is left for tensors, and `fits` is judged against it: what the allocator holds
    beyond tensors it gives back, but for the reserve's entry `fragmentation`. `host` is what all
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
    device: DeviceMemory | None = None
    """The fullest GPU as PyTorch and the driver count it; None in answers stored before."""
    by_stage: tuple[Mapping[str, Any], ...] | None = None
    """Memory policies of stages, or of chunks, as `memory.by_stage` takes them; None: all are the
    same."""
    interval: tuple[float, float] | None = None
    """80 % interval of the peak's bytes; None where no published run is like the plan's."""

    @property
    def host_per_node(self) -> float:
        """Bytes of all categories of `host`."""
        return sum(self.host.values())

    @property
    def fits_device(self) -> bool:
        """Whether the highest peak is within the budget."""
        return self.peak.peak_bytes <= self.budget

    @property
    def may_differ(self) -> bool:
        """Whether the interval of the peak reaches to the other side of the budget."""
        return self.interval is not None and self.interval[0] <= self.budget < self.interval[1]

    @property
    def fits_host(self) -> bool:
        """Whether a node has room for what its ranks keep on the host."""
        return self.host_capacity is None or self.host_per_node <= self.host_capacity

    def to_json(self) -> dict[str, Any]:
        """The section of the JSON report; categories of the peak rank come first."""
        return {
            "categories": dict(self.peak.categories),
            "peak_bytes": self.peak.peak_bytes,
            "interval": self.interval,
            "may_differ": self.may_differ,
            "peak_moment": self.peak.peak_moment,
            "stage": self.peak.stage,
            "capacity": self.capacity,
            "reserve": dict(self.reserve),
            "budget": self.budget,
            "device": asdict(self.device) if self.device else None,
            **({"by_stage": list(self.by_stage)} if self.by_stage else {}),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Head):
    """The answers to one step."""

    tokens: int
    """Tokens of the whole run."""
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
    expectations: tuple[Judgement, ...] = ()
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
    uneven: Uneven | None = None
    """What it costs that ranks differ; None where they do not."""
    correction: Correction | None = None
    """What published runs make of the step; None without them, or under `--physics`."""

    @property
    def verdict(self) -> str:
        """Does it fit, how long, how much, and what is the bottleneck."""
        return verdict(self)

    @property
    def may_differ(self) -> bool:
        """Whether the interval of the peak reaches to the other side of the budget."""
        return self.memory.may_differ

    def body(self) -> dict[str, Any]:
        """What only a step has."""
        return {
            "correction": self.correction and self.correction.to_json(),
            "step_ns": self.step_ns,
            "breakdown_ns": dict(self.breakdown_ns),
            "breakdown": in_seconds(self.breakdown_ns),
            "exposure": {cause: exposed.to_json() for cause, exposed in self.exposure.items()},
            "roles": [_role_json(role) for role in self.roles],
            "memory": self.memory.to_json(),
            "cost_breakdown": None if self.bill.cost is None else dict(self.bill.cost),
            "energy": self.bill.energy_json(),
            "goodput": self.goodput.to_json() if self.goodput else None,
            "generated": self.generated.to_json() if self.generated else None,
            "uneven": self.uneven.to_json() if self.uneven else None,
            "unknown": dict(self.bill.unknown),
            "links": {name: asdict(use) for name, use in self.links.items()},
            "overlap": [layer.to_json() for layer in self.overlap],
            "extrapolated_fraction": self.extrapolated_fraction,
            "speed_of_light_seconds": self.speed_of_light_seconds,
        }


def _role_json(role: RoleBreakdown) -> dict[str, Any]:
    ns = dict(role.breakdown_ns)
    return {"role": role.role, "breakdown_ns": ns, "breakdown": in_seconds(ns)}
