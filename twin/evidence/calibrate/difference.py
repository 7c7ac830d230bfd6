"""Two profiles number by number, and what each difference is worth for a scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from twin.engine import lower, simulate
from twin.evidence.calibrate.factors import replaced
from twin.planning import plan
from twin.scenario import Scenario
from twin.spec.calibration import CalibrationSpec


@dataclass(frozen=True, slots=True)
class Change:
    """A number that differs: both values (None where a profile does not have it), and by how many
    seconds it moves the scenario's step by itself (fast path; None without a scenario)."""

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
    """What differs between two profiles, and the step of a scenario under either, by events."""

    old: str
    new: str
    changes: tuple[Change, ...]
    seconds: tuple[float, float] | None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "old": self.old,
            "new": self.new,
            "changes": [
                {"path": c.path, "old": c.old, "new": c.new, "ratio": c.ratio, "seconds": c.seconds}
                for c in self.changes
            ],
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
    alone = None if scenario is None else _seconds(scenario, old, "fast")
    changes: list[Change] = []
    for path in paths:
        moved = None
        if scenario is not None and alone is not None and path in before and path in after:
            moved = _seconds(scenario, replaced(old, path, after[path]), "fast") - alone
        changes.append(Change(path, before.get(path), after.get(path), moved))
    both = None
    if scenario is not None:
        both = (_seconds(scenario, old, "events"), _seconds(scenario, new, "events"))
    return Difference(old.name, new.name, tuple(changes), both)


def _seconds(scenario: Scenario, profile: CalibrationSpec, fidelity: str) -> float:
    program = lower(plan(scenario.model_copy(update={"calibration": profile})))
    return simulate(program, fidelity="fast" if fidelity == "fast" else "events").step_ns / 1e9


def _numbers(profile: CalibrationSpec) -> dict[str, float]:
    return dict(_leaves(profile.model_dump(mode="python"), ""))


def _leaves(values: Mapping[str, Any], above: str) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(cast("dict[str, Any]", value), f"{above}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{above}{key}", float(value)
