"""Measured steps as rows of a fit: each is simulated under the profile in question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import exp, log
from typing import Any, Final, cast

import numpy as np

from twin.engine import lower, plan, simulate
from twin.evidence.calibrate import factors as numbers
from twin.evidence.calibrate.choice import ChosenFactors, choose, sets_of
from twin.evidence.calibrate.columns import StepRow
from twin.evidence.calibrate.factors import STEP_FACTORS, Array, Factor, replaced
from twin.inference.seconds import decode_pass
from twin.kinds.rollouts.plan import server_of
from twin.scenario import Scenario
from twin.spec.base import Spec
from twin.spec.calibration import CalibrationSpec

SETS: Final = sets_of(
    STEP_FACTORS,
    "compute",
    "compute+attention",
    "compute+memory",
    "compute+host",
    "compute+links",
    "compute+attention+memory",
    "compute+attention+host",
    "compute+attention+links",
    "compute+memory+host",
    "compute+memory+links",
    "compute+host+links",
    "compute+memory+host+links",
    "compute+attention+memory+host+links",
)
"""What is tried, from few numbers to many: products first, which most of a step waits for."""
SEEN: Final = 1e-3
"""Logarithm by which a factor moves some row, for rows to tell it (OURS): clocks of steps are no
better."""

Tell = Callable[[str], None]


class StepSimulator:
    """The rows of a fit under some base; what was played once is kept."""

    def __init__(self, steps: Sequence[StepRow], base: CalibrationSpec) -> None:
        self.steps = tuple(replace(own, scenario=_as_run(own, base)) for own in steps)
        self.base = base
        self._seconds: dict[tuple[object, ...], float] = {}

    def error(self, row: int, factors: dict[Factor, float]) -> float:
        """Logarithm of predicted over measured seconds."""
        key = (row, *((factor.name, value) for factor, value in factors.items()))
        if key not in self._seconds:
            self._seconds[key] = self._play(row, factors)
        return log(self._seconds[key] / self.steps[row].measured)

    def bounds(self, factors: Sequence[Factor]) -> tuple[Array, Array]:
        """Least and most of the factors' logarithms."""
        nodes: list[Spec] = [step.scenario.cluster.node for step in self.steps]
        stacks: list[Spec] = [one for step in self.steps if (one := step.scenario.software)]
        sections = {"calibration": [self.base], "node": nodes, "software": stacks}
        return numbers.bounds(factors, sections)

    def moves(self, factor: Factor) -> float:
        """By how much a factor moves the row that it moves most, as a logarithm: a spread to either
        side, and where a fit begins."""
        values = {exp(-factor.spread), exp(factor.spread), *factor.starts}
        every = range(len(self.steps))
        before = [self.error(row, {}) for row in every]
        after = ([self.error(row, {factor: value}) for row in every] for value in values)
        return max(abs(a - b) for own in after for a, b in zip(own, before, strict=True))

    def _play(self, row: int, factors: dict[Factor, float]) -> float:
        own = self.steps[row]
        scenario = under(own.scenario, self.base, factors)
        if own.decode is not None:
            return _pass_seconds(scenario, *own.decode)
        return simulate(lower(plan(scenario))).step_ns / 1e9


def _as_run(own: StepRow, base: CalibrationSpec) -> Scenario:
    """A row's scenario with the layers of its chunks written out: a step that was measured keeps
    its split, whatever profile is tried on it."""
    scenario = own.scenario
    if own.decode is not None or scenario.parallel.pipeline * scenario.parallel.virtual == 1:
        return scenario
    layers = plan(under(scenario, base, {})).layers_per_part
    parallel = scenario.parallel.model_copy(update={"layers": layers})
    return scenario.model_copy(update={"parallel": parallel})


def _pass_seconds(scenario: Scenario, batch: int, cached: int) -> float:
    """Of the engine under the scenario's profile, without what its host takes beside."""
    assert scenario.rl is not None, "rows of passes have an engine"
    bare: dict[str, Any] = {
        "calibration": None,
        "step_overhead": 0.0,
        "sequence_overhead": 0.0,
    }
    spec = scenario.rl.rollout
    spec = spec.model_copy(update={"engine": spec.engine.model_copy(update=bare)})
    server, _ = server_of(scenario, spec)
    return decode_pass(server, batch, float(cached)).seconds


def under(scenario: Scenario, base: CalibrationSpec, factors: dict[Factor, float]) -> Scenario:
    """The scenario with a profile, the links of its nodes and the host of its stack under some
    factors."""
    node = numbers.scaled("node", scenario.cluster.node, factors)
    changes: dict[str, Any] = {
        "cluster": scenario.cluster.model_copy(update={"node": node}),
        "calibration": numbers.scaled("calibration", base, factors),
    }
    if scenario.software is not None:
        changes["software"] = numbers.scaled("software", scenario.software, factors)
    return scenario.model_copy(update=changes)


def is_bare(scenario: Scenario) -> bool:
    """Whether no stack says what the host does."""
    return scenario.software is None or scenario.software.host is None


def fit_steps(
    rows: StepSimulator,
    sets: Sequence[tuple[Factor, ...]] = SETS,
    *,
    forced: bool = False,
) -> ChosenFactors:
    """The factors that the rows can tell; the last set, where that is `forced`."""
    return choose(rows.error, len(rows.steps), sets, rows.bounds, forced=forced)


def errors(rows: StepSimulator, factors: dict[Factor, float], which: Iterable[int]) -> Array:
    """Errors of some rows."""
    return np.array([rows.error(row, factors) for row in which])


@dataclass(frozen=True, slots=True)
class NumberChange:
    """A number that differs: both values (None where a profile does not have it), and by how many
    seconds it moves the scenario's step by itself (None without a scenario)."""

    path: str
    old: float | None
    new: float | None
    seconds: float | None

    @property
    def ratio(self) -> float | None:
        """New over old."""
        return self.new / self.old if self.old and self.new is not None else None


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between two profiles, and the step of a scenario under either."""

    old: str
    new: str
    changes: tuple[NumberChange, ...]
    seconds: tuple[float, float] | None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "old": self.old,
            "new": self.new,
            "changes": [asdict(change) | {"ratio": change.ratio} for change in self.changes],
            "step_seconds": list(self.seconds) if self.seconds else None,
        }


def difference(
    old: CalibrationSpec, new: CalibrationSpec, scenario: Scenario | None = None
) -> Difference:
    """Every number in which two profiles differ, the old one first."""
    before, after = _numbers(old), _numbers(new)
    paths = [
        path for path in dict.fromkeys((*before, *after)) if before.get(path) != after.get(path)
    ]
    alone = None if scenario is None else _step_seconds(scenario, old)
    changes: list[NumberChange] = []
    for path in paths:
        moved = None
        if scenario is not None and alone is not None and path in before and path in after:
            moved = _step_seconds(scenario, replaced(old, path, after[path])) - alone
        changes.append(NumberChange(path, before.get(path), after.get(path), moved))
    both = None
    if scenario is not None:
        both = (_step_seconds(scenario, old), _step_seconds(scenario, new))
    return Difference(old.name, new.name, tuple(changes), both)


def _step_seconds(scenario: Scenario, profile: CalibrationSpec) -> float:
    program = lower(plan(scenario.model_copy(update={"calibration": profile})))
    return simulate(program).step_ns / 1e9


def _numbers(profile: CalibrationSpec) -> dict[str, float]:
    return dict(_leaves(profile.model_dump(mode="python"), ""))


def _leaves(values: Mapping[str, Any], above: str) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(cast("dict[str, Any]", value), f"{above}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{above}{key}", float(value)
