"""One step of all ranks on one axis of time, and who waited for whom in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from twin.engine.program import COMPUTE, EXPERT, SEND_BACKWARD, SEND_FORWARD
from twin.evidence.measured.folder import MeasuredRun
from twin.evidence.measured.layout import Layout
from twin.evidence.measured.rank import Rank, Written

Direction = Literal["forward", "backward"]
Key = tuple[Direction, int, int]
"""Of a message: its direction, the chunk that receives it, the micro-batch."""
SENDS: Final = (SEND_FORWARD, SEND_BACKWARD)
_WORLD: Final = ("gradient_norm",)
"""Collectives of all ranks, whatever group was written down."""
_DIRECTION: Final[Mapping[str, Direction]] = {"activations": "forward", "gradients": "backward"}


@dataclass(frozen=True, slots=True)
class Message:
    """What one rank sent another: when sending began and ended, and when it came, if its receiver
    wrote that down."""

    sent: int
    gone: int
    came: int | None


@dataclass(frozen=True)
class Line:
    """One rank in a step."""

    spans: Written
    names: tuple[str, ...]
    """Of each span."""
    begun: NDArray[np.int64]
    """When a collective had all its ranks, where its group is known; else when it was asked for."""
    messages: Mapping[Key, Message]
    """Those that this rank received."""
    window: tuple[int, int]
    """Its own step."""


@dataclass(frozen=True)
class Moment:
    """One step; times in ns since its first rank began it."""

    layout: Layout
    step_ns: int
    ranks: tuple[Line, ...]


def moment(run: MeasuredRun, step: int) -> Moment:
    """A finished step of a run."""
    begin, end = run.window(step)
    spans = [rank.of(step).within(*rank.steps[step], begin) for rank in run.ranks]
    named = [_names(rank, own) for rank, own in zip(run.ranks, spans, strict=True)]
    begun = _begun(run, spans, named)
    messages = _messages(run, step, begin, list(zip(spans, named, strict=True)))
    lines: list[Line] = []
    for number, rank in enumerate(run.ranks):
        first, last = rank.steps[step]
        window = (first - begin, last - begin)
        lines.append(Line(spans[number], named[number], begun[number], messages[number], window))
    return Moment(run.layout, end - begin, tuple(lines))


def _names(rank: Rank, spans: Written) -> tuple[str, ...]:
    names: list[int] = spans.name.tolist()
    return tuple(rank.words[name] for name in names)


def _begun(
    run: MeasuredRun, spans: Sequence[Written], named: Sequence[tuple[str, ...]]
) -> list[NDArray[np.int64]]:
    """When the last rank of each collective's group asked for it: nothing moves before.

    The n-th collective of a name, chunk and micro-batch is the same one on all ranks of its group.
    """
    found = [own.start.copy() for own in spans]
    met: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for rank, own in enumerate(spans):
        words, seen = run.ranks[rank].words, dict[tuple[object, ...], int]()
        groups: list[int] = own.group.tolist()
        for row in np.flatnonzero((own.stream != COMPUTE) & ~np.isin(own.stream, SENDS)).tolist():
            name = named[rank][row]
            kind = _group(name, words[groups[row]], int(own.stream[row]))
            if kind not in run.layout.groups:
                continue
            what = (kind, name, int(own.chunk[row]), int(own.microbatch[row]))
            seen[what] = seen.get(what, 0) + 1
            group = int(run.layout.groups[kind][rank])
            met.setdefault((*what, group, seen[what]), []).append((rank, row))
    for (kind, *_, group, _), members in met.items():
        size = int((run.layout.groups[str(kind)] == group).sum())
        if len(members) == size > 1:
            last = max(int(spans[rank].start[row]) for rank, row in members)
            for rank, row in members:
                found[rank][row] = min(last, int(spans[rank].end[row]))
    return found


def _group(name: str, written: str, stream: int) -> str:
    """The kind of group whose ranks a collective waits for; empty where that is unknown."""
    if name in _WORLD:
        return "world"
    return written or ("expert" if stream == EXPERT else "")


def _messages(
    run: MeasuredRun,
    step: int,
    begin: int,
    sent: Sequence[tuple[Written, tuple[str, ...]]],
) -> list[dict[Key, Message]]:
    """What every rank received."""
    found: list[dict[Key, Message]] = [{} for _ in run.ranks]
    stage_of = run.layout.chunk_map.stage_of
    for rank, (spans, named) in enumerate(sent):
        for row in np.flatnonzero(np.isin(spans.stream, SENDS)).tolist():
            chunk, microbatch = int(spans.chunk[row]), int(spans.microbatch[row])
            if not 0 <= chunk < len(stage_of):
                continue
            to = run.layout.pipelines[rank][stage_of[chunk]]
            came = run.ranks[to].arrivals.get((step, named[row], chunk, microbatch))
            found[to][direction(named[row], int(spans.stream[row])), chunk, microbatch] = Message(
                int(spans.start[row]), int(spans.end[row]), None if came is None else came - begin
            )
    return found


def direction(name: str, stream: int) -> Direction:
    """Which way a message goes."""
    return _DIRECTION.get(name, "backward" if stream == SEND_BACKWARD else "forward")
