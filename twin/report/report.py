"""The Report: the answers to one run, as data. Its JSON is the public contract (README, "The JSON
report").

All numbers are SI (seconds, bytes, FLOP/s); integers of nanoseconds carry `_ns` in their name.
Everything but `provenance.created` and `provenance.wall_seconds` is a function of the scenario: the
same scenario gives the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from twin.plan.types import Warning
from twin.report.breakdown import in_seconds
from twin.report.expect import Judgement
from twin.report.verdict import verdict
from twin.sources import Kind, Source

VERSION = 1
"""Version of the JSON document; it grows when a key changes its meaning or leaves."""

Interval = tuple[float, float]

UNCALIBRATED = frozenset(("calibration-of-another-gpu", "assumed-calibration"))
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


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """The peak rank's memory by category, and every stage's, against what the device offers. All in
    bytes.

    `capacity` is what the driver exposes; `reserve` is taken by the runtime before any tensor;
    `budget` is what is left for tensors, and `fits` is judged against it."""

    peak: StagePeak
    capacity: float
    reserve: Mapping[str, float]
    budget: float
    stages: tuple[StagePeak, ...]

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
            "roles": [_role_json(role) for role in self.roles],
            "memory": self.memory.to_json(),
            "links": {name: asdict(use) for name, use in self.links.items()},
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
