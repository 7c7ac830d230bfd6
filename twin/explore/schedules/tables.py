"""What passes take and hold, as arrays: times, messages and memory of a compiled plan, for the
machine code that runs orders.

A turn is a code. Of C chunks, c is the forward of chunk c, C + c its whole backward, 2 C + c and
3 C + c the backward's halves for the input and the weights. A pair of the forward of f and the
backward of b is 4 C + 2 (f C + b), one more where the backward is in halves.

Times are those of the templates that the engine plays, each with its links and SMs to itself: what
a second one takes right behind the first, with the host a pass ahead: what waits for the host alone
is left out. Bytes are those of
the memory ledger (`twin.planning.walk`). Of what goes to host memory the device holds what is on
its way: the copies that were found in the plan at its fullest moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.engine.program import COMPUTE, DATA, SEND_FORWARD, Program
from twin.explore.schedules.turn_times import TurnTimer, nanoseconds_alone
from twin.planning.footprint import Footprint, footprints, spared
from twin.planning.types import Plan
from twin.schedules.base import ChunkMap, Pass
from twin.schedules.notation import Turn

Numbers: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.float64]

KINDS: Final[tuple[Pass, ...]] = ("F", "B", "I", "W")


BEFORE, AFTER, STAGE, FORWARD_MESSAGE, BACKWARD_MESSAGE, REDUCES = range(6)
FORWARD, BACKWARD, WEIGHTS, SPLIT, LASTS = range(5)
FORWARD_LAG, BACKWARD_LAG, FORWARD_RESULT, BACKWARD_RESULT = range(5, 9)
DURING, LEAVES = range(2)
ROOM, CLOSES = range(2)
"""Rows of `Tables`."""


class Tables(NamedTuple):
    """A step to be ordered; nanoseconds and bytes. Few arrays, since each costs to compile."""

    chunks: Numbers
    """Of every chunk: the chunks before and after it on the way of a micro-batch, -1 for none; its
    stage; what its input takes to arrive, and the gradient of its output; the reduction of its
    gradients."""
    codes: Numbers
    """Of every code: the chunk of its forward, of its backward and of its weights' half, -1 for
    none; whether its backward is in halves; what it takes; from its start until it needs the input
    of its forward, and of its backward, and until their results are there."""
    held: Bytes
    """Of every code: bytes at its fullest beyond what the stage holds before it, and those that it
    leaves behind."""
    stages: Bytes
    """Of every stage: bytes for what passes hold, and what follows its last reduction."""
    microbatches: int
    """Of each chunk."""
    staggered: bool

    @property
    def size(self) -> int:
        """How many chunks there are."""
        return self.chunks.shape[1]

    def with_room(self, room: Bytes) -> Tables:
        """The same step with other memory."""
        stages = self.stages.copy()
        stages[ROOM] = room
        return self._replace(stages=stages)


def code_of(turn: Turn, chunks: int) -> int:
    """The code of a turn."""
    kind, chunk = turn[-1]
    if len(turn) == 1:
        return KINDS.index(kind) * chunks + chunk
    return 4 * chunks + 2 * (turn[0][1] * chunks + chunk) + (kind == "I")


def turn_of(code: int, chunks: int) -> Turn:
    """The turn of a code."""
    if code < 4 * chunks:
        return ((KINDS[code // chunks], code % chunks),)
    both, split = divmod(code - 4 * chunks, 2)
    return (("F", both // chunks), ("I" if split else "B", both % chunks))


def tables_of(plan: Plan, program: Program, *, pairs: bool) -> Tables:
    """The tables of a plan."""
    chunk_map = program.chunk_map
    costs = _Costs(program)
    needs = footprints(plan.chunks)
    size, stages = len(chunk_map.stage_of), program.stages
    codes = 4 * size + 2 * size * size
    table, held = np.zeros((9, codes), np.int64), np.zeros((2, codes))
    table[:SPLIT] = -1
    for turn in _turns(chunk_map, pairs=pairs):
        code = code_of(turn, size)
        for row, value in costs.turn(turn).items():
            table[row, code] = value
        held[:, code] = _bytes(turn, needs)
    crossing = [costs.message * one for one in _crossing(chunk_map.before, chunk_map)]
    returning = [costs.message * one for one in _crossing(chunk_map.after, chunk_map)]
    reduces, closes = costs.ends(chunk_map)
    beside = [_numbers(chunk_map.before), _numbers(chunk_map.after), chunk_map.stage_of]
    return Tables(
        chunks=np.array([*beside, crossing, returning, reduces], np.int64),
        codes=table,
        held=held,
        stages=np.array([[np.inf] * stages, closes]),
        microbatches=program.microbatches // chunk_map.copies,
        staggered=program.schedule.staggered,
    )


_FORWARD: Final = FORWARD, FORWARD_LAG, FORWARD_RESULT
_BACKWARD: Final = BACKWARD, BACKWARD_LAG, BACKWARD_RESULT


def _numbers(chunks: Iterable[int | None]) -> list[int]:
    return [-1 if one is None else one for one in chunks]


def _crossing(beside: Sequence[int | None], chunk_map: ChunkMap) -> list[bool]:
    """Of every chunk, whether what comes from beside it comes from another stage."""
    stage = chunk_map.stage_of
    return [one is not None and stage[one] != stage[own] for own, one in enumerate(beside)]


def _turns(chunk_map: ChunkMap, *, pairs: bool) -> Iterable[Turn]:
    """All turns that there are, each pair on one stage."""
    size = len(chunk_map.stage_of)
    for kind in KINDS:
        for chunk in range(size):
            yield ((kind, chunk),)
    if not pairs:
        return
    for one in range(size):
        for other in range(size):
            if chunk_map.stage_of[one] == chunk_map.stage_of[other]:
                yield (("F", one), ("B", other))
                yield (("F", one), ("I", other))


def _bytes(turn: Turn, needs: dict[int, Footprint]) -> tuple[float, float]:
    """What a turn needs at its fullest beyond what is held before it, and leaves behind."""
    during = leaves = 0.0
    for kind, chunk in turn:
        own = needs[chunk]
        away = {"F": own.sent, "W": 0.0}.get(kind, -own.sent)
        found = own.before(kind).total
        during += own.during(kind).total - found
        leaves += own.after(kind).total - found - away
    if len(turn) > 1:
        during -= spared(needs[turn[0][1]], needs[turn[1][1]]).total
    return during, leaves


class _Costs:
    """Nanoseconds of a Program's turns, messages and ends."""

    def __init__(self, program: Program) -> None:
        self.program, self.timer = program, TurnTimer(program)
        message = nanoseconds_alone(program.message.step(SEND_FORWARD), program)
        self.message = message + self.timer.receive

    def turn(self, turn: Turn) -> dict[int, int]:
        """What a turn takes, by the rows of `Tables.codes`."""
        times = self.timer.of(tuple((kind, chunk, False) for kind, chunk in turn))
        found = {LASTS: times.lasts, SPLIT: int(turn[-1][0] == "I")}
        for lane, (kind, chunk) in enumerate(turn):
            if kind == "W":
                found[WEIGHTS] = chunk
                continue
            own, lag, result = _FORWARD if kind == "F" else _BACKWARD
            found[own], found[result] = chunk, times.results[lane]
            found[lag] = 0 if lane == times.lead else times.second
        return found

    def ends(self, chunk_map: ChunkMap) -> tuple[list[int], list[int]]:
        """The reduction of every chunk, and of every stage what follows the last."""
        reduces = [0] * len(chunk_map.stage_of)
        closes: list[int] = []
        finishes = zip(self.program.finish, self.program.ready_after, strict=True)
        for steps, ready in finishes:
            later = 0
            for step, chunk in zip(steps, ready, strict=True):
                lasts = nanoseconds_alone(step, self.program)
                if chunk is not None:
                    reduces[chunk] += lasts
                elif step.stream in (COMPUTE, DATA):
                    later += lasts
            closes.append(later)
        if self.program.schedule.staggered:
            return reduces, closes
        return reduces, [max(closes)] * len(closes)
