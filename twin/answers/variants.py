"""Variants of a scenario: some values replaced, and the answer to each, by the fast path unless
events are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from twin.engine import lower, simulate
from twin.engine.program import Program
from twin.kinds.base import Fidelity
from twin.planning import plan
from twin.planning.types import Plan
from twin.reports.breakdown import mean
from twin.scenario import Root, Scenario, UpdateScenario

Document = dict[str, Any]
"""A scenario in plain data, as its file would say it: quantities are text with units."""


def document(scenario: Root, *, step: bool = True) -> Document:
    """The scenario in plain data, which validates to the same scenario; without what is expected of
    it, which variants need not meet, what a sweep varies, and, for variants of a `step`, phases."""
    left_out = ("expect", "sweep", "phases", "start")[: 4 if step else 2]
    return scenario.model_dump(mode="json", by_alias=True, exclude={*left_out})


def replaced(base: Document, values: Mapping[str, Any]) -> Any:
    """The scenario with the values at some dotted paths replaced. Raises pydantic's
    `ValidationError`, a ValueError, where a section does not allow them."""
    changed = base
    for path, value in values.items():
        changed = _set(changed, path.split("."), value)
    root = UpdateScenario if UpdateScenario.section in base else Scenario
    return root.model_validate(changed)


def value_at(values: Document, path: str) -> Any:
    """The value at a dotted path; items of lists count from 0. None where there is none."""
    found: Any = values
    for key in path.split("."):
        if isinstance(found, list):
            found = cast("list[Any]", found)[int(key)]
        elif isinstance(found, dict):
            found = cast(Document, found).get(key)
        else:
            return None
    return found


def _set(section: Any, keys: Sequence[str], value: Any) -> Any:
    """A copy of the section with another value under the keys; what is not on the way is shared."""
    if not keys:
        return value
    first, *rest = keys
    if isinstance(section, list):
        items = cast("list[Any]", section)
        index = int(first)
        return [*items[:index], _set(items[index], rest, value), *items[index + 1 :]]
    known: Document = cast(Document, section) if isinstance(section, dict) else {}
    return {**known, first: _set(known.get(first), rest, value)}


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """What is said of one scenario."""

    plan: Plan
    step_ns: int
    breakdown_ns: Mapping[str, int]
    """Mean over ranks; sums to `step_ns` exactly."""

    @property
    def days(self) -> float:
        """Days of the whole run."""
        train = self.plan.scenario.train
        return train.tokens / train.global_batch * self.step_ns / 1e9 / 86400

    @property
    def headroom(self) -> float:
        """Bytes that the fullest GPU has left; negative where the plan does not fit."""
        return self.plan.memory.budget - self.plan.memory.peak.peak_bytes


@dataclass(slots=True)
class StepAnswers:
    """Answers of one fidelity. A step is played once: scenarios that come to the same Program share
    it."""

    fidelity: Fidelity = "fast"
    runs: int = 0
    """Programs played so far."""
    _played: list[tuple[Program, int, Mapping[str, int]]] = field(
        default_factory=list[tuple[Program, int, Mapping[str, int]]]
    )

    def of(self, scenario: Scenario) -> StepAnswer:
        """The answer. Raises `ScenarioError` where the layout is impossible."""
        planned = plan(scenario)
        program = lower(planned, "group" if self.fidelity == "group" else "folded")
        for known, step_ns, breakdown_ns in self._played:
            if known == program:
                return StepAnswer(planned, step_ns, breakdown_ns)
        trace = simulate(program, fidelity="fast" if self.fidelity == "fast" else "events")
        self.runs += 1
        self._played.append((program, trace.step_ns, mean(trace.breakdown_ns)))
        return StepAnswer(planned, *self._played[-1][1:])


def written(value: Any) -> str:
    """A value as one would write it into YAML on one line."""
    if isinstance(value, dict):
        pairs = cast(Document, value).items()
        return "{" + ", ".join(f"{key}: {written(item)}" for key, item in pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(written(item) for item in cast("Iterable[Any]", value)) + "]"
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return str(value)
