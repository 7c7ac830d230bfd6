"""A measured step compared with a simulated one: step, causes, actions; both as one trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from twin.engine.trace import Spans, Trace
from twin.evidence.measured.run_folder import MeasuredRun, RunLayout
from twin.evidence.measured.summary import ActionTimes, RunSummary, simulated_actions
from twin.planning.types import Plan
from twin.reports.breakdown import in_seconds, mean
from twin.reports.table import digits, show

_CLOSE: Final = 0.05
"""Percent below which two steps are called as long."""


@dataclass(frozen=True, slots=True)
class ActionComparison:
    """A kind of action; seconds are the mean over chunks of the median of each."""

    name: str
    measured_seconds: float | None
    """None where it did not happen."""
    predicted_seconds: float | None
    """None where the simulator has no such action."""
    count: int
    """How many were timed."""
    chunks: tuple[ChunkComparison, ...]

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
class ChunkComparison:
    """An action in one chunk."""

    chunk: int
    measured_seconds: float | None
    predicted_seconds: float | None


@dataclass(frozen=True, slots=True)
class StepComparison:
    """What was measured, and what was predicted of it."""

    measured_ns: int
    predicted_ns: int
    measured_row: Mapping[str, int]
    """How the mean rank spent its step, by cause."""
    predicted_row: Mapping[str, int]
    actions: tuple[ActionComparison, ...]
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


def compare_steps(
    run: MeasuredRun, found: RunSummary, measured: Trace, plan: Plan, predicted: Trace
) -> StepComparison:
    """A measured step of a run beside the simulated step of a plan."""
    return StepComparison(
        measured_ns=measured.step_ns,
        predicted_ns=predicted.step_ns,
        measured_row=mean(measured.breakdown_ns, measured.ranks),
        predicted_row=mean(predicted.breakdown_ns, predicted.ranks),
        actions=compare_actions(found.actions, simulated_actions(predicted)),
        mismatches=tuple(_mismatches(run, plan)),
    )


def compare_actions(
    measured: Sequence[ActionTimes], predicted: Sequence[ActionTimes] = ()
) -> tuple[ActionComparison, ...]:
    """Every action that was measured or predicted. Where only some chunks of it are known on both
    sides, those are compared."""
    rows: list[ActionComparison] = []
    for name in dict.fromkeys(one.name for one in (*measured, *predicted)):
        mine, other = _by_chunk(measured, name), _by_chunk(predicted, name)
        chunks = sorted({*mine, *other})
        both = [chunk for chunk in chunks if chunk in mine and chunk in other] or chunks
        rows.append(
            ActionComparison(
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


def sentence(found: RunSummary, happened: Trace, compared: StepComparison | None) -> str:
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


def _prediction(compared: StepComparison) -> str:
    """The predicted step, and how far off it is."""
    said, off = _seconds(compared.predicted_ns), 100 * compared.step_error
    if abs(off) < _CLOSE:
        return f"The prediction, {said}, is as long"
    way = "too long" if off > 0 else "too short"
    return f"The prediction, {said}, is {digits(abs(off))} % {way}"


def _seconds(ns: int) -> str:
    return show(ns / 1e9, "s")


def _by_chunk(actions: Iterable[ActionTimes], name: str) -> dict[int, ActionTimes]:
    return {one.chunk: one for one in actions if one.name == name}


def _chunk(chunk: int, mine: ActionTimes | None, other: ActionTimes | None) -> ChunkComparison:
    return ChunkComparison(chunk, mine and mine.median / 1e9, other and other.median / 1e9)


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


_COLUMNS: Final = ("role", "stream", "name", "chunk", "microbatch", "start", "end")
_SIDES: Final = ("measured", "predicted")
_MOST: Final = 1_000_000
"""Spans up to which repetitions that were not played are written out."""


def joined_trace(
    layout: RunLayout, measured: Trace, predicted: Trace, most: int | None = None
) -> Trace:
    """Both steps from their beginnings on, stage by stage, the measured ranks first; of each side
    and stage at most so many ranks where `most` is given. It has no critical path."""
    traces = (measured, unfolded(predicted))
    width = max(1, len(predicted.roles) // layout.mesh.pipeline)
    stages = (layout.stage, [role // width for role in range(len(predicted.roles))])
    places = [
        (stage, side, role)
        for side, of_roles in enumerate(stages)
        for role, stage in enumerate(of_roles)
        if most is None or list(of_roles[:role]).count(stage) < most
    ]
    places.sort()
    names = tuple(dict.fromkeys(name for one in traces for name in one.names))
    own = [{one[2]: at for at, one in enumerate(places) if one[1] == side} for side in (0, 1)]
    parts = [_renumbered(one, own[side], names) for side, one in enumerate(traces)]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS}
    order = np.lexsort((joined["start"], joined["stream"], joined["role"]))
    return Trace(
        spans=Spans(**{name: column[order] for name, column in joined.items()}),
        names=names,
        roles=tuple(f"{traces[side].roles[role]}, {_SIDES[side]}" for _, side, role in places),
        step_ns=max(one.step_ns for one in traces),
        breakdown_ns=tuple(traces[side].breakdown_ns[role] for _, side, role in places),
        link_bytes={},
        link_busy={},
        events=sum(one.events for one in traces),
        played_microbatches=measured.microbatches,
        microbatches=measured.microbatches,
    )


def unfolded(trace: Trace) -> Trace:
    """The trace with the repetitions of its steady window written out, and everything behind them
    at its true time; as it is where that would be too much."""
    spans, length = trace.spans, trace.window_end - trace.window_start
    inside = (spans.start >= trace.window_start) & (spans.start < trace.window_end)
    more = trace.repeats - 1
    if more <= 0 or len(spans.start) + more * int(inside.sum()) > _MOST:
        return trace
    behind = spans.start >= trace.window_end
    batches = (trace.microbatches - trace.played_microbatches) // more
    parts = [_shifted(spans, ~behind, 0, 0)]
    parts += [_shifted(spans, inside, one * length, one * batches) for one in range(1, more + 1)]
    parts.append(_shifted(spans, behind, more * length, more * batches))
    joined = {name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS}
    order = np.lexsort((joined["start"], joined["stream"], joined["role"]))
    whole = Spans(**{name: column[order] for name, column in joined.items()})
    return replace(trace, spans=whole, repeats=1, window_start=0, window_end=0, critical=())


def _shifted(
    spans: Spans, rows: NDArray[np.bool_], later: int, batches: int
) -> dict[str, NDArray[Any]]:
    """Some spans, later and of later micro-batches."""
    columns = _columns(spans)
    found = {name: column[rows] for name, column in columns.items()}
    found["start"], found["end"] = found["start"] + later, found["end"] + later
    passes = found["microbatch"] >= 0
    found["microbatch"] = found["microbatch"] + np.where(passes, batches, 0).astype(np.int32)
    return found


def _renumbered(
    trace: Trace, places: dict[int, int], names: tuple[str, ...]
) -> dict[str, NDArray[Any]]:
    """The spans of the roles that have a place, with the numbers of all names."""
    place = np.array([places.get(role, -1) for role in range(len(trace.roles))], np.int32)
    index = np.array([names.index(name) for name in trace.names] or [0], np.int32)
    columns = _columns(trace.spans)
    kept = place[columns["role"]] >= 0
    found = {name: column[kept] for name, column in columns.items()}
    found["role"], found["name"] = place[found["role"]], index[found["name"]]
    return found


def _columns(spans: Spans) -> dict[str, NDArray[Any]]:
    return {name: getattr(spans, name) for name in _COLUMNS}
