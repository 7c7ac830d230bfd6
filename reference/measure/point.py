"""One measured operation: what it did, how long it took, and the line of JSON that keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Statistic = Literal["least", "median"]
"""Which of a point's seconds a fit takes. On a CPU that others use, the least is what the hardware
does and the median what the neighbours left of it; on a GPU of one's own they are close."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call over repeated samples: least, quartiles, most; how many samples, and
    calls in each; samples above the upper quartile by more than 1.5 times the quartiles' distance
    (Tukey 1977, Exploratory Data Analysis). On a CPU also the wall's least and median: the seconds
    are the process's own there (`reference.measure.clock`)."""

    least: float
    lower: float
    median: float
    upper: float
    most: float
    samples: int
    calls: int
    outliers: int
    wall_least: float | None = None
    wall_median: float | None = None

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
        """The point as one line of JSON, its seconds in six digits."""
        fields = asdict(self) | {"shape": dict(self.shape)}
        fields["timing"] = {name: _short(value) for name, value in fields["timing"].items()}
        return json.dumps(fields)

    def rate(self, statistic: Statistic) -> float:
        """FLOP per second."""
        return self.flop / self.timing.seconds(statistic)


def _short(value: float | None) -> float | None:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def read_point(fields: Mapping[str, Any]) -> Point:
    """The point that a line holds. Raises `KeyError` or `TypeError` where it is none."""
    return Point(**{**fields, "timing": Timing(**fields["timing"])})
