"""A measured step beside a simulated one: step, causes and actions, and how far the prediction is
from what happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from twin.engine.trace import Trace
from twin.evidence.measured.actions import Action, simulated
from twin.evidence.measured.folder import MeasuredRun
from twin.evidence.measured.summary import Summary
from twin.planning.types import Plan
from twin.reports.breakdown import in_seconds, mean
from twin.reports.numbers import digits, show

_CLOSE: Final = 0.05
"""Percent below which two steps are called as long."""


@dataclass(frozen=True, slots=True)
class ActionBeside:
    """A kind of action; seconds are the mean over chunks of the median of each."""

    name: str
    measured_seconds: float | None
    """None where it did not happen."""
    predicted_seconds: float | None
    """None where the simulator has no such action."""
    count: int
    """How many were timed."""
    chunks: tuple[ChunkBeside, ...]

    @property
    def error(self) -> float | None:
        """Predicted over measured, minus one; None where one of them is unknown."""
        return error(self.measured_seconds, self.predicted_seconds)

    @property
    def weight(self) -> float:
        """Seconds that all of them together are off; 0 where that is unknown."""
        known, said = self.measured_seconds, self.predicted_seconds
        return 0.0 if known is None or said is None else abs(said - known) * self.count


@dataclass(frozen=True, slots=True)
class ChunkBeside:
    """An action in one chunk."""

    chunk: int
    measured_seconds: float | None
    predicted_seconds: float | None


@dataclass(frozen=True, slots=True)
class Beside:
    """What was measured, and what was predicted of it."""

    measured_ns: int
    predicted_ns: int
    measured_row: Mapping[str, int]
    """How the mean rank spent its step, by cause."""
    predicted_row: Mapping[str, int]
    actions: tuple[ActionBeside, ...]
    mismatches: tuple[str, ...]
    """Where plan and run are not the same: then the two should not be compared."""

    @property
    def step_error(self) -> float:
        """Predicted over measured, minus one."""
        return self.predicted_ns / self.measured_ns - 1

    def to_json(self) -> dict[str, Any]:
        """The prediction and its errors as plain data; times in seconds."""
        return {
            "step_seconds": self.predicted_ns / 1e9,
            "step_error": self.step_error,
            "breakdown": in_seconds(self.predicted_row),
            "mismatches": list(self.mismatches),
            "actions": [asdict(one) | {"error": one.error} for one in self.actions],
        }


def beside(
    run: MeasuredRun, found: Summary, measured: Trace, plan: Plan, predicted: Trace
) -> Beside:
    """A measured step of a run beside the simulated step of a plan."""
    return Beside(
        measured_ns=measured.step_ns,
        predicted_ns=predicted.step_ns,
        measured_row=mean(measured.breakdown_ns),
        predicted_row=mean(predicted.breakdown_ns),
        actions=actions_beside(found.actions, simulated(predicted)),
        mismatches=tuple(_mismatches(run, plan)),
    )


def actions_beside(
    measured: Sequence[Action], predicted: Sequence[Action] = ()
) -> tuple[ActionBeside, ...]:
    """Every action that was measured or predicted. Where only some chunks of it are known on both
    sides, those are compared."""
    rows: list[ActionBeside] = []
    for name in dict.fromkeys(one.name for one in (*measured, *predicted)):
        mine, other = _by_chunk(measured, name), _by_chunk(predicted, name)
        chunks = sorted({*mine, *other})
        both = [chunk for chunk in chunks if chunk in mine and chunk in other] or chunks
        rows.append(
            ActionBeside(
                name,
                _mean(mine[chunk].median for chunk in both if chunk in mine),
                _mean(other[chunk].median for chunk in both if chunk in other),
                sum(one.count for one in mine.values()),
                tuple(_chunk(chunk, mine.get(chunk), other.get(chunk)) for chunk in chunks),
            )
        )
    return tuple(rows)


def error(measured: float | None, predicted: float | None) -> float | None:
    """Predicted over measured, minus one; None where one of them is unknown or nothing."""
    return predicted / measured - 1 if measured and predicted else None


def sentence(found: Summary, happened: Trace, compared: Beside | None) -> str:
    """The answer in a sentence: the step, how steps spread, and the prediction."""
    took = _seconds(happened.step_ns)
    many = len(found.counted)
    said = f"Step {found.step} took {took}"
    if many > 1:
        spread = f"half of {many} steps took {_seconds(found.low)} to {_seconds(found.high)}"
        said = f"{said}; {spread}, the median {_seconds(found.median)}"
    if compared is None:
        return f"{said}."
    return f"{said}. {_prediction(compared)}."


def _prediction(compared: Beside) -> str:
    """The predicted step, and how far off it is."""
    said, off = _seconds(compared.predicted_ns), 100 * compared.step_error
    if abs(off) < _CLOSE:
        return f"The prediction, {said}, is as long"
    way = "too long" if off > 0 else "too short"
    return f"The prediction, {said}, is {digits(abs(off))} % {way}"


def _seconds(ns: int) -> str:
    return show(ns / 1e9, "s")


def _by_chunk(actions: Iterable[Action], name: str) -> dict[int, Action]:
    return {one.chunk: one for one in actions if one.name == name}


def _chunk(chunk: int, mine: Action | None, other: Action | None) -> ChunkBeside:
    return ChunkBeside(chunk, mine and mine.median / 1e9, other and other.median / 1e9)


def _mean(times: Iterable[float]) -> float | None:
    known = list(times)
    return sum(known) / len(known) / 1e9 if known else None


def _mismatches(run: MeasuredRun, plan: Plan) -> list[str]:
    mesh, parallel, scenario = run.layout.mesh, plan.scenario.parallel, plan.scenario
    pairs = {
        "model": (run.header.model, scenario.model.name),
        "ranks": (mesh.ranks, plan.mesh.ranks),
        "pipeline": (mesh.pipeline, plan.mesh.pipeline),
        "virtual": (run.layout.virtual, parallel.virtual),
        "expert": (mesh.expert, plan.mesh.expert),
        "schedule": (run.layout.schedule.kind, parallel.schedule.kind),
        "micro-batches of a pipeline": (run.header.microbatches, plan.microbatches),
    }
    return [
        f"{what}: {measured} in the run, {planned} in the plan"
        for what, (measured, planned) in pairs.items()
        if measured != planned
    ]
