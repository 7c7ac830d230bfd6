"""One measured operation: what it did, how long it took, and the line of JSON that keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Statistic = Literal["least", "median"]
"""Which of a point's seconds a fit takes. On a machine that others use, the least is what the
hardware does and the median what the neighbours left; on a GPU of one's own they are close."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call over repeated samples: least, quartiles, most; how many samples, and
    calls in each; samples above the upper quartile by more than 1.5 times the quartiles' distance
    (Tukey 1977, Exploratory Data Analysis); and the share of the wall time in which this process
    did not run (None where the clock is a GPU's)."""

    least: float
    lower: float
    median: float
    upper: float
    most: float
    samples: int
    calls: int
    outliers: int
    waited: float | None = None

    def seconds(self, statistic: Statistic) -> float:
        """Seconds of one call."""
        return self.least if statistic == "least" else self.median


@dataclass(frozen=True, slots=True)
class Point:
    """One operation of one shape: FLOP of its matrix products, bytes that it must move (each input
    read once, each output written once), and how many kernels the twin counts it as."""

    group: str
    op: str
    shape: Mapping[str, int]
    dtype: str
    flop: float
    bytes: float
    kernels: int
    timing: Timing

    def text(self) -> str:
        """The point as one line of JSON."""
        return json.dumps(asdict(self) | {"shape": dict(self.shape)})

    def rate(self, statistic: Statistic) -> float:
        """FLOP per second."""
        return self.flop / self.timing.seconds(statistic)


def read_point(fields: Mapping[str, Any]) -> Point:
    """The point that a line holds. Raises `KeyError` or `TypeError` where it is none."""
    return Point(**{**fields, "timing": Timing(**fields["timing"])})
