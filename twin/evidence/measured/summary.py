"""A run at a glance: the step that represents it, how steps spread, and how long actions take.

A pass is the sum of its stretches of computing, without the waits between them. A message and an
expert all-to-all is one transfer, from when its ranks arrived. Of any other collective, and of the
optimizer, all of a rank's in one step count together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from twin.engine.program import COMPUTE, EXPERT
from twin.engine.trace import Trace
from twin.errors import Problem, UsageError
from twin.evidence.measured.run_folder import MeasuredRun
from twin.evidence.measured.step import SENDS, WORDS, MeasuredStep, measured_step, senders

MESSAGE: Final = "message"
_PASSES: Final[Mapping[str, str]] = {word: kind for kind, word in WORDS.items()}
_ORDER: Final = ("F", "B", "I", "W", "optimizer", MESSAGE, "dispatch", "combine")
"""How actions are listed; others follow."""
Place = tuple[str, int]
"""An action's name and its chunk; of a message the one that sends it; -1 of none."""


@dataclass(frozen=True, slots=True)
class ActionTimes:
    """How long a kind of action takes: nanoseconds, the median and the quartiles of all of them."""

    name: str
    """`F`, `B`, `I`, `W`, `optimizer`, `message`; or the name of a collective."""
    chunk: int
    count: int
    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class _Timed:
    """Spans with the time that counts."""

    names: list[str]
    stream: NDArray[Any]
    role: NDArray[Any]
    chunk: NDArray[Any]
    microbatch: NDArray[Any]
    length: NDArray[np.int64]


def measured_actions(steps: Iterable[MeasuredStep]) -> tuple[ActionTimes, ...]:
    """The actions of some steps of a run."""
    found: dict[Place, list[NDArray[np.int64]]] = {}
    for step in steps:
        for role, line in enumerate(step.ranks):
            own = line.spans
            sent = np.isin(own.stream, SENDS).tolist()
            names = [MESSAGE if send else name for send, name in zip(sent, line.names, strict=True)]
            length = own.end - np.where(own.stream == COMPUTE, own.start, line.begun)
            chunk, roles = senders(line, step.layout.chunk_map), np.full(len(own), role)
            _gather(found, _Timed(names, own.stream, roles, chunk, own.microbatch, length))
    return _actions(found)


def simulated_actions(trace: Trace) -> tuple[ActionTimes, ...]:
    """The actions of a simulated step, as far as it was played."""
    spans, found = trace.spans, dict[Place, list[NDArray[np.int64]]]()
    halves: list[int] = spans.chunk[_named(trace, WORDS["I"])].tolist()
    split = set(halves)
    columns = (spans.name, spans.stream, spans.chunk)
    rows: list[tuple[int, int, int]] = np.stack(columns, axis=1).astype(np.int64).tolist()
    names = [
        _simulated_name(trace.names[name], stream, split=chunk in split)
        for name, stream, chunk in rows
    ]
    length = spans.end - spans.start
    _gather(found, _Timed(names, spans.stream, spans.role, spans.chunk, spans.microbatch, length))
    return _actions(found)


def _named(trace: Trace, name: str) -> NDArray[np.bool_]:
    index = trace.names.index(name) if name in trace.names else -1
    return trace.spans.name == index


def _simulated_name(name: str, stream: int, *, split: bool) -> str:
    """What a trainer calls a span of the simulator; what is computed again belongs to the pass that
    needs it."""
    if stream in SENDS:
        return MESSAGE
    if stream != COMPUTE:
        return name
    if name == "recompute":
        return "I" if split else "B"
    return _PASSES.get(name, name)


def _gather(found: dict[Place, list[NDArray[np.int64]]], spans: _Timed) -> None:
    """Add the times of actions to those found."""
    words = {name: place for place, name in enumerate(dict.fromkeys(spans.names))}
    alone = np.isin(spans.stream, (*SENDS, EXPERT))
    whole = ~alone & (spans.stream != COMPUTE)
    index = np.array([words[name] for name in spans.names], np.int64)
    keys = np.stack(
        [
            index,
            np.where(whole, -1, spans.chunk),
            spans.role,
            np.where(whole, -1, spans.microbatch),
            np.where(alone, np.arange(len(index)), -1),
        ]
    )
    unique, inverse = np.unique(keys, axis=1, return_inverse=True)
    total = np.zeros(unique.shape[1], np.int64)
    np.add.at(total, inverse.ravel(), spans.length)
    listed = tuple(words)
    for name, chunk in {(int(name), int(chunk)) for name, chunk in unique[:2].T.tolist()}:
        own = (unique[0] == name) & (unique[1] == chunk)
        found.setdefault((listed[name], chunk), []).append(total[own])


def _actions(found: Mapping[Place, list[NDArray[np.int64]]]) -> tuple[ActionTimes, ...]:
    actions: list[ActionTimes] = []
    for (name, chunk), parts in sorted(found.items(), key=lambda item: _rank(item[0])):
        times = np.concatenate(parts)
        low, median, high = np.percentile(times, [25, 50, 75]).tolist()
        actions.append(ActionTimes(name, chunk, len(times), median, low, high))
    return tuple(actions)


def _rank(place: Place) -> tuple[int, str, int]:
    name, chunk = place
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name, chunk)


_WARM_UP: Final = 10
"""One in so many steps, the first ones, are warm-up: OURS. Buffers are new then, caches cold."""
_LOOKED_AT: Final = 64
"""Steps whose actions are timed, evenly over the run: OURS; more would not move a median."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run at a glance; times in nanoseconds."""

    step: int
    """The one that stands for the run: whose time is the median, or that was asked for."""
    warm_up: tuple[int, ...]
    """Steps that are not counted."""
    counted: tuple[int, ...]
    median: int
    low: int
    high: int
    """Quartiles of the steps' times."""
    least: int
    most: int
    actions: tuple[ActionTimes, ...]

    def to_json(self) -> dict[str, Any]:
        """All of it; times in seconds."""
        seconds = ("median", "low", "high", "least", "most")
        document = asdict(self)
        return {
            "chosen": self.step,
            "counted": len(self.counted),
            "warm_up": len(self.warm_up),
            **{f"{name}_seconds": document[name] / 1e9 for name in seconds},
        }


def summary(run: MeasuredRun, step: int | None = None) -> RunSummary:
    """A run at a glance, with the step that stands for it: `step`, or else the median one.

    Raises `UsageError` where not every rank finished that step.
    """
    if step is not None and step not in run.steps:
        message = f"step {step} was not finished by every rank of `{run.folder}`"
        known = f"there are {len(run.steps)}, {run.steps[0]} to {run.steps[-1]}"
        raise UsageError([Problem("TW334", "", message, known)])
    cold = 0 if len(run.steps) == 1 else max(1, len(run.steps) // _WARM_UP)
    counted = run.steps[cold:]
    times = np.array([run.step_ns(one) for one in counted])
    # The lower one of two in the middle: a step that happened.
    middle = counted[int(np.argsort(times, kind="stable")[(len(times) - 1) // 2])]
    low, median, high = np.percentile(times, [25, 50, 75]).tolist()
    return RunSummary(
        step=middle if step is None else step,
        warm_up=run.steps[:cold],
        counted=counted,
        median=round(median),
        low=round(low),
        high=round(high),
        least=int(times.min()),
        most=int(times.max()),
        actions=measured_actions(measured_step(run, one) for one in _spread(counted)),
    )


def _spread(steps: tuple[int, ...]) -> list[int]:
    """At most so many steps as are looked at, evenly over all."""
    places = np.linspace(0, len(steps) - 1, min(len(steps), _LOOKED_AT)).round().astype(int)
    return [steps[at] for at in places.tolist()]
