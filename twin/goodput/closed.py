"""The expected share of time that is progress, exactly, for a run without end.

Interruptions are a Poisson process, so every restart begins the same story anew, and the mean over
one such story is the mean over the run (renewal reward). A story is: work, a save every `every`
seconds of work, until an interruption after a time with mean 1/rate; then a restart, which another
failure may interrupt. With saves that count at once and no planned interruptions it is the expected
time of completion of Daly's complete model, T = M exp(R/M) (exp((every + blocked)/M) - 1) T_s /
every (Daly 2006, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS
22(3)); saves that count only `lag` seconds later multiply T by exp(lag/M).

Left out: the ends of a run, which has no save after its last step; and that spares may run out,
which only simulation sees (`twin.goodput.monte_carlo`).

The best time between two checkpoints, in closed form.

`blocked` is what one save takes from training, `mtbf` the mean time between failures of the whole
job; all are seconds. What a restart takes, and how long an asynchronous save needs until it counts,
do not move the optimum (`twin.goodput.closed`: they are factors of the whole).

The Goodput: how much of its time a run makes progress, and where the rest goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, expm1, isinf, sqrt
from typing import Any, Final, Literal

from twin.loading.files import table
from twin.planning.types import Warning


def young(blocked: float, mtbf: float) -> float:
    """Young's interval in seconds of work: sqrt(2 x blocked x mtbf) (Young 1974, A first order
    approximation to the optimum checkpoint interval, CACM 17(9)). Breaks where saves are not short
    beside the mean time between failures.

    >>> young(300, 86400)
    7200.0
    """
    return sqrt(2.0 * blocked * mtbf)


def daly_first_order(blocked: float, mtbf: float) -> float:
    """Daly's first-order interval in seconds of work: Young's, less the save (Daly 2006, A higher
    order estimate of the optimum checkpoint interval for restart dumps, FGCS 22(3)); no less than
    zero."""
    return max(young(blocked, mtbf) - blocked, 0.0)


def daly(blocked: float, mtbf: float) -> float:
    """Daly's interval in seconds of work, to higher order (his perturbation solution); the mean
    time between failures itself where a save takes twice as long.

    >>> round(daly(5, 24 * 60)), round(daly(5, 6 * 60)), round(daly(5, 15), 1)  # his figures 3 to 5
    (117, 57, 9.1)
    """
    if blocked >= 2.0 * mtbf:
        return mtbf
    ratio = blocked / (2.0 * mtbf)
    return young(blocked, mtbf) * (1.0 + sqrt(ratio) / 3.0 + ratio / 9.0) - blocked


_LARGEST = 700.0
"""Exponents beyond this are no numbers any more; nothing survives so long."""
_NEVER = 1e-15
"""Less in a second is once in 30 million years: no run is so long, and sums lose their digits."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Shares of the time; `fraction` and the losses sum to one."""

    fraction: float
    losses: Mapping[Loss, float]


def expected(conditions: Conditions) -> Expected:
    """The effective share of the time and where the rest goes."""
    work, wall, saving, restart, kept = _story(conditions)
    pace = 1.0 - conditions.slow * (1.0 - 1.0 / conditions.slowdown)
    losses: dict[Loss, float] = {
        "rework": (work - kept) / wall,
        "saving": saving / wall,
        "restart": restart / wall,
        "waiting": 0.0,
        "stragglers": kept * (1.0 - pace) / wall,
    }
    return Expected(kept * pace / wall, losses)


def _story(one: Conditions) -> tuple[float, float, float, float, float]:
    """Seconds between two restarts, on average: work, all, saving, restarting, and work that is
    kept."""
    rate = one.unexpected + one.planned
    if rate < _NEVER:
        if isinf(one.every):
            return 1.0, 1.0, 0.0, 0.0, 1.0
        return one.every, one.every + one.blocked, one.blocked, 0.0, one.every
    unexpected, planned = one.unexpected / rate, one.planned / rate
    work = _work(one, rate)
    cycle = min(rate * (one.every + one.blocked), _LARGEST)
    durable = one.every * exp(-rate * one.lag) / expm1(cycle) if not isinf(one.every) else 0.0
    kept = unexpected * min(durable, work) + planned * work
    before = planned * (one.blocked + one.lag)
    saving = 1.0 / rate - work + before
    down = _restarting(one, unexpected, planned)
    return work, 1.0 / rate + before + down, saving, down, kept


def _work(one: Conditions, rate: float) -> float:
    """Seconds of work, not of saves, until an interruption: the integral of the survival over all
    times that are no save."""
    if isinf(one.every):
        return 1.0 / rate
    return expm1(-rate * one.every) / expm1(-rate * (one.every + one.blocked)) / rate


def _restarting(one: Conditions, unexpected: float, planned: float) -> float:
    """Seconds of restarts after one interruption. A failure during a restart begins another: one of
    R seconds lasts (exp(R x rate) - 1) / rate."""
    rate = one.unexpected
    if rate < _NEVER:
        return planned * one.planned_restart
    longer = exp(min(rate * one.restart, _LARGEST))
    after_planned = -expm1(-rate * one.planned_restart) * longer / rate
    return unexpected * (longer - 1.0) / rate + planned * after_planned


Loss = Literal["rework", "saving", "restart", "waiting", "stragglers"]

LOSSES: Final[dict[Loss, str]] = table(__name__, "LOSSES")
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
