"""Which measurements would narrow the interval of a scenario's step most, and what they take.

The interval says by how much predictions miss (`twin.reports.interval`). A part of that are numbers
of the catalog that have a range. A number explains the square of half the change of the step over
its range, as a share of the square of half the interval: as if causes were independent and the
interval their sum. A measurement takes away what its numbers explain, but for `LEFT`. Step times of
one's own trainer take away all that sources and software do to predictions; what stays is the
scatter of runs of one source. Nothing goes below that.

Each measurement is judged alone, in the order of what a minute of it takes away. It breaks where
ranges of the catalog are wider, or narrower, than what is really unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from math import ceil, log, sqrt
from pathlib import Path
from typing import Any, Final

from twin.explore.study.influence import Influence, influence
from twin.loading.files import read_data
from twin.reports.interval import FAMILY, NORMAL
from twin.scenario import Scenario

VERSION: Final = 1
"""Version of the JSON document."""
LEFT: Final = 0.05
"""Of what a number explains, what stays once it is measured (OURS): its range becomes about a fifth
as wide, so that 0.2 squared is left."""
SHOWN: Final = 0.002
"""Share of the interval's square below which a measurement is not worth a line."""
STEPS: Final = "steps"
"""The measurement that tells of the step as a whole."""
WHOLE_STEP: Final = "*"
"""The pattern of all numbers, those without a range among them."""


@dataclass(frozen=True, slots=True)
class MissingMeasurement:
    """A measurement: what it tells, minutes, the share of the interval's square that it takes away
    alone, half the interval with it (share of the step), and how to run it."""

    name: str
    words: str
    numbers: tuple[str, ...]
    minutes: float
    share: float
    half: float
    command: str


@dataclass(frozen=True, slots=True)
class Missing:
    """What would narrow an interval: measurements, and the numbers that none of them tells but step
    times, with the share of the interval's square that each explains."""

    step_seconds: float
    interval: tuple[float, float]
    half: float
    """Half the interval, as a share of the step: half the logarithm of its ends' ratio."""
    measurements: tuple[MissingMeasurement, ...]
    others: tuple[tuple[str, float], ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "step_seconds": self.step_seconds,
            "interval": list(self.interval),
            "half": self.half,
            "measurements": [asdict(one) for one in self.measurements],
            "others": [{"number": path, "share": share} for path, share in self.others],
        }


def what_is_missing(
    scenario: Scenario,
    step_seconds: float,
    interval: tuple[float, float],
    progress: Callable[[float], None] | None = None,
) -> Missing:
    """What would narrow the interval of a scenario's step most. Raises what `influence` does."""
    half = log(interval[1] / interval[0]) / 2
    explained = _explained(influence(scenario, progress), step_seconds, half)
    floor = min(1.0, (NORMAL * FAMILY / half) ** 2)
    found = _ordered(_known(scenario, step_seconds), explained, floor, half)
    told = {path for one in found for path in one.numbers if one.name != STEPS}
    others = sorted(
        ((path, share) for path, share in explained.items() if path not in told and share > SHOWN),
        key=lambda pair: -pair[1],
    )
    return Missing(step_seconds, interval, half, found, tuple(others))


def _explained(
    numbers: Sequence[Influence], step_seconds: float, half: float
) -> Mapping[str, float]:
    """The share of the interval's square that each number explains; all together at most 1."""
    squares = {one.path: (one.span / 2 / step_seconds / half) ** 2 for one in numbers if one.span}
    total = max(1.0, sum(squares.values()))
    return {path: square / total for path, square in squares.items()}


def _known(scenario: Scenario, step_seconds: float) -> Mapping[str, Mapping[str, Any]]:
    """The measurements that make sense for the cluster, with their commands and all minutes."""
    cluster = scenario.cluster
    has = {
        "": True,
        "gpus": cluster.node.gpus > 1,
        "nodes": cluster.nodes > 1,
        "offload": bool(scenario.memory.offload),
    }
    few = min(cluster.nodes, 4)
    facts = {"gpus": cluster.node.gpus, "few": few, "ranks": few * cluster.node.gpus}
    told: Mapping[str, Mapping[str, Any]] = read_data(Path(__file__).with_suffix(".yaml"))
    return {
        name: {
            **own,
            "command": own["command"].format(**facts),
            "minutes": ceil(own["minutes"] + own.get("steps", 0) * step_seconds / 60),
        }
        for name, own in told.items()
        if has[own["needs"]]
    }


def _ordered(
    known: Mapping[str, Mapping[str, Any]],
    explained: Mapping[str, float],
    floor: float,
    half: float,
) -> tuple[MissingMeasurement, ...]:
    """The measurements, first what takes most away per minute."""
    found = [
        MissingMeasurement(
            name,
            own["words"],
            tuple(path for path in explained if _tells(own["numbers"], path)),
            own["minutes"],
            gain,
            half * sqrt(1 - gain),
            own["command"],
        )
        for name, own in known.items()
        if (gain := _gain(own["numbers"], explained, floor)) > SHOWN
    ]
    return tuple(sorted(found, key=lambda one: -one.share / one.minutes))


def _gain(patterns: Sequence[str], explained: Mapping[str, float], floor: float) -> float:
    """What a measurement takes away of the interval's square."""
    if WHOLE_STEP in patterns:
        return 1 - floor
    told = sum(share for path, share in explained.items() if _tells(patterns, path))
    return min(1 - floor, told * (1 - LEFT))


def _tells(patterns: Sequence[str], path: str) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)
