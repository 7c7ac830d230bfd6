"""The Goodput: how much of its time a run makes progress, and where the rest goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from twin.planning.types import Warning

Loss = Literal["rework", "saving", "restart", "waiting", "stragglers"]

LOSSES: Final[dict[Loss, str]] = {
    "rework": "work done again, since the last durable checkpoint",
    "saving": "training blocked by saves",
    "restart": "detection, rescheduling, loading, initialising, warm-up",
    "waiting": "waiting for a repair, with no spare node left",
    "stragglers": "steps at the pace of a slow node",
}
"""Where the time goes that is no progress, in words."""


@dataclass(frozen=True, slots=True)
class Hazard:
    """One cause of interruptions of the whole job: how many in a second, on average."""

    name: str
    per_second: float
    planned: bool = False
    replaces_node: bool = False


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a run lives under: hazards, and seconds of what is done about them."""

    hazards: tuple[Hazard, ...]
    every: float
    """Work between two saves; infinite where none is worth it."""
    blocked: float
    """For which a save blocks training."""
    lag: float = 0.0
    """From then until the checkpoint is durable."""
    restart: float = 0.0
    planned_restart: float = 0.0
    spares: int | None = None
    """Nodes; None: always enough."""
    repair: float = 0.0
    slow: float = 0.0
    """Probability that at least one node is slow."""
    slowdown: float = 1.0

    @property
    def unexpected(self) -> float:
        """Interruptions in a second that nobody has planned."""
        return sum(one.per_second for one in self.hazards if not one.planned)

    @property
    def planned(self) -> float:
        """Interruptions in a second that are known in advance."""
        return sum(one.per_second for one in self.hazards if one.planned)


@dataclass(frozen=True, slots=True)
class Saves:
    """Checkpoints of a run: bytes, and seconds of one save and of the time between two."""

    bytes: float
    blocked_seconds: float
    durable_seconds: float
    """From the beginning of a save until it counts."""
    every_seconds: float | None
    """None: no failure is expected, so nothing is saved."""
    every: Literal["auto", "written"]
    young_seconds: float | None
    daly_first_seconds: float | None
    daly_seconds: float | None
    simulated_seconds: float | None
    """The best interval, by three formulas and by simulation; None without failures."""


@dataclass(frozen=True, slots=True)
class LargestLoss:
    """What one interruption may cost, all in all, where the run still makes `target` of its time
    count. Seconds."""

    target: float
    seconds: float | None
    """In the closed form; None without interruptions."""
    simulated_seconds: float | None
    interval: tuple[float, float] | None
    """80 % of the simulated runs."""
    mean_seconds: float | None
    """What one costs here, on average."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """How much of its time a run makes progress, simulated with seeds, beside the closed form."""

    fraction: float
    """Effective share of the time: progress of all simulated runs over their time."""
    interval: tuple[float, float]
    """80 % of the simulated runs."""
    standard_error: float
    """Of `fraction`."""
    expected_fraction: float
    """In the closed form, which knows no end of spares."""
    wall_ns: int
    useful_ns: int
    losses_ns: Mapping[Loss, int]
    """Mean of the simulated runs; with `useful_ns` they sum to `wall_ns` exactly."""
    expected_losses: Mapping[Loss, float]
    """Shares of the time in the closed form."""
    per_day: Mapping[str, float]
    """Interruptions in a day of the job, by cause."""
    interruptions: float
    """In one simulated run, on average."""
    saves: Saves
    restart_seconds: float
    planned_restart_seconds: float
    largest: LargestLoss
    days: float
    """Of the run without failures."""
    days_with_failures: float | None
    """None where it would never end."""
    seeds: int
    seed: int
    source: str
    """Name of the observation that the rates come from."""
    warnings: tuple[Warning, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The section `goodput` of the JSON report: SI units, days where the name says so."""
        saves, largest = self.saves, self.largest
        return {
            "fraction": self.fraction,
            "interval": list(self.interval),
            "standard_error": self.standard_error,
            "expected_fraction": self.expected_fraction,
            "wall_ns": self.wall_ns,
            "useful_ns": self.useful_ns,
            "losses_ns": dict(self.losses_ns),
            "losses": {name: ns / 1e9 for name, ns in self.losses_ns.items()},
            "expected_losses": dict(self.expected_losses),
            "interruptions": self.interruptions,
            "interruptions_per_day": dict(self.per_day),
            "checkpoint": {
                "bytes": saves.bytes,
                "blocked_seconds": saves.blocked_seconds,
                "durable_seconds": saves.durable_seconds,
                "every": saves.every,
                "every_seconds": saves.every_seconds,
                "best_seconds": {
                    "young": saves.young_seconds,
                    "daly_first_order": saves.daly_first_seconds,
                    "daly": saves.daly_seconds,
                    "simulated": saves.simulated_seconds,
                },
            },
            "restart_seconds": self.restart_seconds,
            "planned_restart_seconds": self.planned_restart_seconds,
            "target_fraction": largest.target,
            "largest_loss_seconds": largest.seconds,
            "largest_loss_seconds_simulated": largest.simulated_seconds,
            "largest_loss_interval": list(largest.interval) if largest.interval else None,
            "mean_loss_seconds": largest.mean_seconds,
            "days": self.days,
            "days_with_failures": self.days_with_failures,
            "seeds": self.seeds,
            "seed": self.seed,
            "failures": self.source,
        }
