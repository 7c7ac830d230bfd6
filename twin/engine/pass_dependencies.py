"""What every stage runs in turn, and whose results it takes: a schedule's order with its messages.

The same for all Programs of one layout, so the last few are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

from twin.engine.program import send_stream
from twin.planning.offload import offloaded
from twin.schedules.base import Action, ChunkMap, Pass, Schedule, ends_of

NOWHERE: Final = -1
"""No result, or no message."""

Passes: TypeAlias = tuple[tuple[Pass, int, bool], ...]
"""A pass, its chunk, and whether it is the chunk's first forward or last backward; or the two of a
pair."""
Lane: TypeAlias = tuple[int, int, int, int]
"""Of one pass: the result that it takes and the one that it gives, by the number of the pass that
takes it; the stream of the message that carries it; and the chunk, if this is its last backward."""
Turn: TypeAlias = tuple[int, int, tuple[Lane, ...]]
"""Position in `Turns.passes`, micro-batch (of a pair the forward's), and a lane for each pass."""


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of every stage, in order."""

    passes: tuple[Passes, ...]
    """All that there is to run."""
    sends: tuple[int, ...]
    """Messages that each of it sends."""
    stages: tuple[tuple[Turn, ...], ...]
    results: int
    """Numbers that results may have."""


Key: TypeAlias = tuple[int, int]
"""Chunk and micro-batch."""
Copy: TypeAlias = tuple[Key | None, bool, Key | None, Key | None]
"""Of one turn: the activations that go out after it, whether it has a forward at all, those that
come back beside it, and those that its backward needs back."""


@lru_cache(maxsize=16)
def copies(
    schedule: Schedule, stages: int, chunks_per_stage: int, microbatches: int
) -> tuple[tuple[Copy, ...], ...]:
    """What travels to the host and back in every turn of every stage, where activations do."""
    orders = schedule.order(stages, chunks_per_stage, microbatches)
    return tuple(tuple(_copies(order)) for order in orders)


def _copies(order: Sequence[Action]) -> Iterator[Copy]:
    away = offloaded(order)
    backwards = [(one.chunk, one.microbatch) for one in order if one.kind in ("B", "I")]
    coming = {now: after for now, after in pairwise(backwards) if after in away}
    out: Key | None = None
    made = False
    for one in order:
        key = one.chunk, one.microbatch
        if one.kind == "F":
            out, made = key if key in away else None, True
            if one.paired:
                continue
        backward = key if one.kind in ("B", "I") else None
        beside = None if backward is None else coming.get(backward)
        yield out, made, beside, backward if backward in away else None
        out, made = None, False


Setting: TypeAlias = tuple[int, int, int, int]
"""Position in `Turns.passes`, how many messages the turn before sends, the chunk whose activations
that one sends to the host, and the chunk whose come back from the start on; `NOWHERE`: none."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The turns of every stage with the messages and copies that start beside them."""

    all: tuple[Setting, ...]
    """Those that there are."""
    stages: tuple[tuple[int, ...], ...]
    """Position in `all` of every turn."""


@lru_cache(maxsize=16)
def settings(
    schedule: Schedule, stages: int, chunks_per_stage: int, microbatches: int, *, copied: bool
) -> Settings:
    """The settings of a step's turns; `copied`: activations go to the host and come back."""
    shape = stages, chunks_per_stage, microbatches
    # A frozen section has a hash, which pyright does not see.
    wired = turns(schedule, *shape)  # pyright: ignore[reportArgumentType]
    moves = copies(schedule, *shape) if copied else ((),) * stages  # pyright: ignore[reportArgumentType]
    numbers: dict[Setting, int] = {}
    found: list[tuple[int, ...]] = []
    for order, around in zip(wired.stages, moves, strict=True):
        places = [turn[0] for turn in order]
        sent = [0, *(wired.sends[place] for place in places[:-1])]
        outs = [None, *(copy[0] for copy in around[:-1])] if around else [None] * len(places)
        backs = [copy[2] for copy in around] if around else outs
        beside = zip(places, sent, map(chunk_of, outs), map(chunk_of, backs), strict=True)
        found.append(tuple([numbers.setdefault(one, len(numbers)) for one in beside]))
    return Settings(tuple(numbers), tuple(found))


def chunk_of(key: Key | None) -> int:
    """The chunk of a copy; `NOWHERE`: no copy."""
    return NOWHERE if key is None else key[0]


@lru_cache(maxsize=16)
def turns(schedule: Schedule, stages: int, chunks_per_stage: int, microbatches: int) -> Turns:
    """The turns of a step of so many micro-batches."""
    wirer = _Wirer(schedule.chunk_map(stages, chunks_per_stage), stages, microbatches)
    orders = schedule.order(stages, chunks_per_stage, microbatches)
    wired = tuple(tuple(wirer.turns(order)) for order in orders)
    sends = tuple(
        sum(wirer.wires[kind, chunk][2] != NOWHERE for kind, chunk, _ in passes)
        for passes in wirer.passes
    )
    return Turns(tuple(wirer.passes), sends, wired, wirer.results)


class _Wirer:
    def __init__(self, chunks: ChunkMap, stages: int, microbatches: int) -> None:
        self.passes: dict[Passes, int] = {}
        self.ends: frozenset[Action] = frozenset()
        """The first forward and the last backward of each chunk on the stage at hand."""
        self.microbatches = microbatches
        size = len(chunks.stage_of)
        self.results = 2 * size * microbatches
        self.wires: dict[tuple[Pass, int], tuple[int, int, int]] = {}
        """What a pass of micro-batch 0 takes and gives, and the stream, by pass and chunk."""
        for chunk in range(size):
            ahead, behind = chunks.after[chunk], chunks.before[chunk]
            ways: tuple[tuple[Pass, int | None, int | None], ...]
            ways = (("F", behind, ahead), ("B", ahead, behind))
            for kind, source, target in ways:
                shift = 0 if kind == "F" else size
                takes = NOWHERE if source is None else (shift + chunk) * microbatches
                gives = NOWHERE if target is None else (shift + target) * microbatches
                own, peer = chunks.stage_of[chunk], chunks.stage_of[target or 0]
                forward = kind == "F"
                stream = NOWHERE
                if peer != own:
                    stream = send_stream(own, peer, stages, forward=forward)
                lane = takes, gives, NOWHERE if target is None else stream
                self.wires[kind, chunk] = lane
            self.wires["I", chunk] = self.wires["B", chunk]
            self.wires["W", chunk] = NOWHERE, NOWHERE, NOWHERE

    def turns(self, order: Sequence[Action]) -> list[Turn]:
        """One stage's actions, a pair being one turn."""
        found: list[Turn] = []
        forward: Action | None = None
        self.ends = ends_of(order)
        for action in order:
            if action.paired:
                forward = action
                continue
            both = (action,) if forward is None else (forward, action)
            named: Passes = tuple((one.kind, one.chunk, one in self.ends) for one in both)
            place = self.passes.setdefault(named, len(self.passes))
            found.append((place, both[0].microbatch, tuple(self._lane(one) for one in both)))
            forward = None
        return found

    def _lane(self, action: Action) -> Lane:
        takes, gives, stream = self.wires[action.kind, action.chunk]
        number = action.microbatch
        return (
            takes if takes == NOWHERE else takes + number,
            gives if gives == NOWHERE else gives + number,
            stream,
            action.chunk if action.kind != "F" and action in self.ends else NOWHERE,
        )
