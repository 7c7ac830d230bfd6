"""How long actions take, measured or simulated: passes, the optimizer, messages, collectives.

A pass is all its stretches of computing: what it waits for in between is not in it. A message and
an expert all-to-all is one transfer, from when its ranks were there; of any other collective, and
of the optimizer, all of a rank's in one step count together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from twin.engine.program import COMPUTE, EXPERT
from twin.engine.trace import Trace
from twin.evidence.measured.moment import SENDS, Moment
from twin.evidence.measured.step import WORDS, senders

MESSAGE: Final = "message"
_PASSES: Final[Mapping[str, str]] = {word: kind for kind, word in WORDS.items()}
_ORDER: Final = ("F", "B", "I", "W", "optimizer", MESSAGE, "dispatch", "combine")
"""How actions are listed; others follow."""
Place = tuple[str, int]
"""An action's name and its chunk; of a message the one that sends it; -1 of none."""


@dataclass(frozen=True, slots=True)
class Action:
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


def measured(moments: Iterable[Moment]) -> tuple[Action, ...]:
    """The actions of some steps of a run."""
    found: dict[Place, list[NDArray[np.int64]]] = {}
    for one in moments:
        for role, line in enumerate(one.ranks):
            own = line.spans
            sent = np.isin(own.stream, SENDS).tolist()
            names = [MESSAGE if send else name for send, name in zip(sent, line.names, strict=True)]
            length = own.end - np.where(own.stream == COMPUTE, own.start, line.begun)
            chunk, roles = senders(line, one.layout.chunk_map), np.full(len(own), role)
            _gather(found, _Timed(names, own.stream, roles, chunk, own.microbatch, length))
    return _actions(found)


def simulated(trace: Trace) -> tuple[Action, ...]:
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


def _actions(found: Mapping[Place, list[NDArray[np.int64]]]) -> tuple[Action, ...]:
    actions: list[Action] = []
    for (name, chunk), parts in sorted(found.items(), key=lambda item: _rank(item[0])):
        times = np.concatenate(parts)
        low, median, high = np.percentile(times, [25, 50, 75]).tolist()
        actions.append(Action(name, chunk, len(times), median, low, high))
    return tuple(actions)


def _rank(place: Place) -> tuple[int, str, int]:
    name, chunk = place
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name, chunk)
