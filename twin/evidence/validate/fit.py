"""Few numbers of calibration profiles, fitted on published steps whose `use` is `fit`; no other row
is read here.

A number is a dotted path in the profiles of one GPU: of all its stacks where the hardware decides,
of one where its software does. The objective is that of `twin.evidence.calibrate.ridge`: log
errors, soft at 10 %, and a prior for every number, which is what was measured of kernels alone or
what its source states; what rows say nothing about stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from twin.evidence.calibrate.factors import Array, replaced
from twin.evidence.calibrate.ridge import Ridge, solve
from twin.evidence.validate.free import Free
from twin.evidence.validate.play import play, settled
from twin.evidence.validate.row import Row, Unreadable
from twin.evidence.validate.steps import measured_seconds
from twin.evidence.validate.training import express
from twin.loading import load_part
from twin.scenario import Scenario
from twin.spec.calibration import CalibrationSpec


@dataclass(frozen=True, slots=True)
class Target:
    """A measured time, and how the twin predicts it under a calibration."""

    id: str
    profile: str
    scenario: Scenario
    measured: float
    predict: Callable[[Scenario], float]

    def error(self, profiles: Mapping[str, CalibrationSpec]) -> float:
        """Logarithm of predicted over measured."""
        known = profiles.get(self.profile)
        own = self.scenario
        if known is not None:
            own = own.model_copy(update={"calibration": known})
        return log(self.predict(own) / self.measured)


@dataclass(frozen=True, slots=True)
class Fit:
    """Free numbers, their optimum, and the rows."""

    free: tuple[Free, ...]
    targets: tuple[Target, ...]
    ridge: Ridge

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers at the optimum."""
        return tuple(one.prior * exp(x) for one, x in zip(self.free, self.ridge.x, strict=True))


def targets(rows: Sequence[Row], profiles: Sequence[str]) -> tuple[Target, ...]:
    """The steps under some profiles that a fit may see."""
    found: list[Target] = []
    for row in rows:
        if row.use != "fit" or row.category != "train_step":
            continue
        try:
            expressed, scenario = settled(express(row))
            profile = str(expressed.tree["calibration"])
            if profile not in profiles:
                continue
            seconds = measured_seconds(row, expressed, scenario)
        except Unreadable:
            continue
        if seconds is not None:
            found.append(Target(row.id, profile, scenario, seconds, _step))
    return tuple(found)


def _step(scenario: Scenario) -> float:
    return play(scenario).step_seconds


def profiles_at(free: Sequence[Free], values: Sequence[float]) -> dict[str, CalibrationSpec]:
    """The catalog's profiles with the numbers in their places."""
    found: dict[str, CalibrationSpec] = {}
    for one, number in zip(free, values, strict=True):
        for name in one.profiles:
            spec = found.get(name) or load_part("calibrations", name).spec
            found[name] = replaced(spec, one.path, number)
    return found


def fit(rows: Sequence[Target], free: Sequence[Free]) -> Fit:
    """The numbers that bring the twin closest to the rows."""

    def errors(x: Array) -> Array:
        numbers = [one.prior * exp(float(moved)) for one, moved in zip(free, x, strict=True)]
        profiles = profiles_at(free, numbers)
        return np.array([row.error(profiles) for row in rows])

    low = np.array([log(one.low / one.prior) for one in free])
    high = np.array([log(one.high / one.prior) for one in free])
    spreads = [one.spread for one in free]
    starts = [np.zeros(len(free))]
    if any(one.start is not None for one in free):
        starts.append(np.array([log((one.start or one.prior) / one.prior) for one in free]))
    found = [solve(errors, spreads, (low, high), start) for start in starts]
    return Fit(tuple(free), tuple(rows), min(found, key=lambda ridge: ridge.cost))
