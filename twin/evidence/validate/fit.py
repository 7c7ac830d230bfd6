"""Fits the numbers of `twin.evidence.validate.free_parameters` on published steps whose `use` is
`fit`: `python -m twin.evidence.validate.fit A100` (or H100, B200) prints them beside the shipped
ones.

A number is a dotted path in the profiles of one GPU, or in software. The objective is that of
`twin.evidence.calibrate.ridge`: log errors, soft at 10 %, and a prior for every number. Numbers
that rows do not determine stay at the prior.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any, cast

import numpy as np

from twin.engine import lower, plan, simulate
from twin.evidence.calibrate.a100_rows import BASE, layer_rows
from twin.evidence.calibrate.factors import Array, replaced
from twin.evidence.calibrate.ridge import Ridge, solve
from twin.evidence.validate.free_parameters import FREE, FreeParameter, profiles, shipped
from twin.evidence.validate.steps import measured_seconds, settled
from twin.evidence.validate.suite import SHIPPED, PublishedRow, Unreadable, read_suite
from twin.evidence.validate.training import express
from twin.loading import load, load_part
from twin.loading.files import shipped_folder
from twin.scenario import Scenario
from twin.spec.base import Spec
from twin.spec.calibration import CalibrationSpec
from twin.spec.software import SoftwareSpec


@dataclass(frozen=True, slots=True)
class Numbers:
    """Profiles and software with fitted numbers in their places, by name."""

    profiles: Mapping[str, CalibrationSpec]
    software: Mapping[str, SoftwareSpec]

    def into(self, scenario: Scenario, profile: str) -> Scenario:
        """A scenario under a profile, with them."""
        changed: dict[str, Spec] = {}
        if profile in self.profiles:
            changed["calibration"] = self.profiles[profile]
        stack = scenario.software
        if stack is not None and stack.name in self.software:
            changed["software"] = self.software[stack.name]
        return scenario.model_copy(update=changed)


@dataclass(frozen=True, slots=True)
class Target:
    """A measured time, and how the twin predicts it under a calibration."""

    id: str
    profile: str
    scenario: Scenario
    measured: float
    predict: Callable[[Scenario], float]

    def error(self, numbers: Numbers) -> float:
        """Logarithm of predicted over measured."""
        return log(self.predict(numbers.into(self.scenario, self.profile)) / self.measured)


@dataclass(frozen=True, slots=True)
class StepFit:
    """Free numbers, their optimum, and the rows."""

    free: tuple[FreeParameter, ...]
    targets: tuple[Target, ...]
    ridge: Ridge

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers at the optimum."""
        return tuple(one.prior * exp(x) for one, x in zip(self.free, self.ridge.x, strict=True))


def targets(rows: Sequence[PublishedRow], profiles: Sequence[str]) -> tuple[Target, ...]:
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
            found.append(Target(row.id, profile, scenario, seconds, step_seconds))
    return tuple(found)


def step_seconds(scenario: Scenario) -> float:
    """Of a scenario's step: a fit simulates every row some fifty times."""
    return simulate(lower(plan(scenario))).step_ns / 1e9


def numbers_at(free: Sequence[FreeParameter], values: Sequence[float]) -> Numbers:
    """The catalog's profiles and software with the numbers in their places."""
    profiles: dict[str, CalibrationSpec] = {}
    software: dict[str, SoftwareSpec] = {}
    for one, number in zip(free, values, strict=True):
        for name in one.profiles:
            profile = profiles.get(name) or load_part("calibrations", name).spec
            profiles[name] = replaced(profile, one.path, number)
        for name in one.software:
            stack = software.get(name) or load_part("software", name).spec
            software[name] = _put(stack, one.path.split("."), number)
    return Numbers(profiles, software)


def _put(part: Any, path: Sequence[str], number: float) -> Any:
    """A part with a number at a path through its sections and tables."""
    name, *rest = path
    if isinstance(part, dict):
        own = cast("dict[str, Any]", part)
        return own | {name: _put(own[name], rest, number) if rest else number}
    value = _put(getattr(part, name), rest, number) if rest else number
    return part.model_copy(update={name: value})


def fit(rows: Sequence[Target], free: Sequence[FreeParameter]) -> StepFit:
    """The numbers that bring the twin closest to the rows."""

    def errors(x: Array) -> Array:
        numbers = [one.prior * exp(float(moved)) for one, moved in zip(free, x, strict=True)]
        known = numbers_at(free, numbers)
        return np.array([row.error(known) for row in rows])

    low = np.array([log(one.low / one.prior) for one in free])
    high = np.array([log(one.high / one.prior) for one in free])
    spreads = [one.spread for one in free]
    starts = [np.zeros(len(free))]
    if any(one.start is not None for one in free):
        starts.append(np.array([log((one.start or one.prior) / one.prior) for one in free]))
    found = [solve(errors, spreads, (low, high), start) for start in starts]
    return StepFit(tuple(free), tuple(rows), min(found, key=lambda ridge: ridge.cost))


def fit_of(gpu: str) -> StepFit:
    """The fit on all shipped rows whose use is `fit`."""
    return fit((*targets(read_suite(), profiles(gpu)), *layers(gpu)), FREE[gpu])


def layers(gpu: str) -> tuple[Target, ...]:
    """Ten times of one layer (Korthikanti et al. 2022, Table 4), for the GPU that they ran on."""
    if "a100-megatron" not in profiles(gpu):
        return ()
    published = shipped_folder() / SHIPPED
    return tuple(
        Target(row.name, "a100-megatron", load(BASE, row.overrides), row.measured, row.predict)
        for row in layer_rows(published)
    )


def table(found: StepFit) -> str:
    """A fit as text: prior, value with its standard error, what is shipped; errors of the rows."""
    lines: list[str] = []
    for one, value, error in zip(found.free, found.values, found.ridge.deviations, strict=True):
        lines.append(
            f"{one.path:28} {one.prior:10.4g} +- {one.spread:4.0%} -> {value:10.4g} +- {error:5.1%}"
            f"  shipped {shipped(one):10.4g}  {', '.join(one.profiles + one.software)}"
        )
    for row, error in zip(found.targets, found.ridge.errors, strict=True):
        lines.append(f"{row.id:64} {row.profile:26} {error:+7.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    for name in sys.argv[1:] or FREE:
        sys.stdout.write(f"{name}\n{table(fit_of(name))}\n")
