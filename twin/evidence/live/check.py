"""A sealed prediction beside what was measured, and how often sealed intervals held."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import log, sqrt
from statistics import NormalDist
from typing import Final, Literal

from twin.evidence.live.pace import Pace
from twin.evidence.live.seal import Seal

VERSION: Final = 1
"""Version of a check's line."""
_CONFIDENCE: Final = 0.95
"""Of the interval of the hit rate."""


@dataclass(frozen=True, slots=True)
class Check:
    """One sealed prediction against one measured step time. Seconds throughout."""

    version: Literal[1]
    seal: str
    """Its digest."""
    checked: str
    """When; ISO 8601, UTC."""
    run: str
    """The run's folder, or what was said of a number."""
    steps: int
    """Measured ones that the median was taken over; 0 of a single number."""
    measured: float
    measured_interval: tuple[float, float] | None
    """Of the median; None where nothing is known of it."""
    predicted: float
    interval: tuple[float, float] | None
    began: str | None
    """When the run began; None where nobody knows."""
    blind: bool | None
    """Whether the prediction was sealed before the run began; None where that is not known."""

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured / self.predicted

    @property
    def hit(self) -> bool | None:
        """Whether the measured median lies in the sealed interval; None where there is none."""
        if self.interval is None:
            return None
        return self.interval[0] <= self.measured <= self.interval[1]


@dataclass(frozen=True, slots=True)
class HitRate:
    """How often sealed intervals held what was measured, each prediction counted once. `interval`
    is where the long-run share lies with 95 % confidence (None: nothing counted)."""

    hits: int
    counted: int
    interval: tuple[float, float] | None
    sealed: int
    """Predictions that were sealed."""
    unchecked: int
    """Of them: that no run has been held against."""
    without_interval: int
    """Of them: checked, but sealed without an interval, so that there is nothing to hit."""
    late: int
    """Of them: checked only against runs that had begun before, or nobody knows when."""

    @property
    def share(self) -> float | None:
        """Hits among those counted; None of none."""
        return self.hits / self.counted if self.counted else None


def check(seal: Seal, measured: Pace, run: str, began: datetime | None, now: datetime) -> Check:
    """Hold a seal against a measured step."""
    sealed = datetime.fromisoformat(seal.sealed)
    return Check(
        version=VERSION,
        seal=seal.digest,
        checked=now.isoformat(timespec="seconds"),
        run=run,
        steps=measured.steps,
        measured=measured.seconds,
        measured_interval=measured.interval,
        predicted=seal.seconds,
        interval=seal.interval,
        began=None if began is None else began.isoformat(timespec="seconds"),
        blind=None if began is None else sealed <= began,
    )


def counting(checks: Iterable[Check]) -> Check | None:
    """The one check of a prediction that counts: of the first run that is known to have begun after
    it was sealed, the latest, which knows most of that run. So no prediction counts twice, and
    checking again, or on another run, cannot turn a miss into a hit. None where there is none."""
    fair = [one for one in checks if one.blind]
    return next((one for one in reversed(fair) if one.run == fair[0].run), None)


def hit_rate(seals: Sequence[Seal], checks: Sequence[Check]) -> HitRate:
    """The share of sealed and checked predictions whose interval held. Predictions without an
    interval, and those not known to be sealed before the run began, are counted apart."""
    by_seal = {one.digest: [row for row in checks if row.seal == one.digest] for one in seals}
    chosen = {digest: counting(rows) for digest, rows in by_seal.items()}
    judged = [one.hit for one in chosen.values() if one is not None]
    counted = [hit for hit in judged if hit is not None]
    return HitRate(
        hits=sum(counted),
        counted=len(counted),
        interval=wilson(sum(counted), len(counted)),
        sealed=len(seals),
        unchecked=sum(not rows for rows in by_seal.values()),
        without_interval=len(judged) - len(counted),
        late=sum(bool(rows) and chosen[digest] is None for digest, rows in by_seal.items()),
    )


def residuals(seals: Sequence[Seal], checks: Sequence[Check]) -> dict[str, float]:
    """ln(measured / predicted) of every prediction that was checked, by the digest of its seal."""
    found: dict[str, float] = {}
    for one in seals:
        chosen = counting(row for row in checks if row.seal == one.digest)
        if chosen is not None:
            found[one.digest] = log(chosen.ratio)
    return found


def wilson(hits: int, counted: int) -> tuple[float, float] | None:
    """Where the share behind `hits` of `counted` lies, with 95 % confidence (Wilson, JASA 22, 1927,
    209-212; close to its confidence for few, too: Brown, Cai and DasGupta, Statistical Science 16,
    2001, section 4). None of none.

    >>> [round(one, 3) for one in wilson(8, 10)]
    [0.49, 0.943]
    """
    if not counted:
        return None
    z = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)
    share, weight = hits / counted, z * z / counted
    middle = (share + weight / 2) / (1 + weight)
    reach = z / (1 + weight) * sqrt(share * (1 - share) / counted + weight / (4 * counted))
    # At the ends the bound is exactly 0 or 1, and rounding must not move it.
    low = 0.0 if hits == 0 else middle - reach
    return low, 1.0 if hits == counted else middle + reach
