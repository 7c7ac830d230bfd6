"""Custom: an order that is written out, such as one that a search has found.

A line of passes per stage (`twin.schedules.notation`), and where the chunks are. A scenario names
the file that holds it, `schedule: found.yaml`, or has it inline. It is checked as a whole: every
pass comes once for each micro-batch, on the stage that holds its chunk, and no stages wait for each
other for ever. Micro-batches pass in order. They are alike, so that an order in which one overtakes
another is never faster.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Annotated, Final, Literal, final

from twin.schedules.base import (
    Action,
    ChunkMap,
    Obstacle,
    Schedule,
    looped,
    mirrored,
    v_shaped,
)
from twin.schedules.notation import Turn, counts, passes, read, steady, written
from twin.spec.base import Count, Exactly, Flag

Placement = Literal["looped", "v", "mirrored"]
PLACEMENTS: Final[tuple[Placement, ...]] = ("looped", "v", "mirrored")
_FIELD: Final = "parallel.schedule.orders"


@final
class Custom(Schedule):
    """An order that is written out: a line of passes for each stage."""

    kind: Literal["custom"] = "custom"
    version: Annotated[Literal[1], Exactly]
    """version of the notation"""
    stages: Count
    """stages that the order is of"""
    chunks: Count
    """chunks per stage, as `parallel.virtual`"""
    placement: Placement = "looped"
    """looped: chunk c is on stage c mod p; v: chunks go down the stages and up again; mirrored: two
    copies of the model, one in each direction"""
    post_validation: Flag = False
    """stages update without waiting for each other's part of the gradient norm"""
    orders: tuple[str, ...]
    """a line of passes per stage: `0F*3 [0F 0B] 0B*3`"""

    @property
    def pairs(self) -> bool:
        """Whether a line has a pair."""
        return any("&" in line for line in self.orders)

    @property
    def staggered(self) -> bool:
        """As `post_validation` says."""
        return self.post_validation

    def chunk_map(self, stages: int, chunks_per_stage: int) -> ChunkMap:
        """As `placement` says."""
        return placed(self.placement, stages, chunks_per_stage)

    def stage_order(
        self, stage: int, stages: int, chunks_per_stage: int, microbatches: int
    ) -> tuple[Action, ...]:
        """The line of a stage, with its steady state as often as there are micro-batches for."""
        parts = read(self.orders[stage])
        once, period = self._passing
        times = (microbatches - once) // period if period else 0
        turns = (*parts.head, *parts.body * times, *parts.tail)
        return tuple(_numbered(turns, self.chunk_map(stages, chunks_per_stage)))

    def period(self, stages: int, chunks_per_stage: int, microbatches: int) -> int | None:
        """Micro-batches of the steady state; None where lines have none."""
        del stages, chunks_per_stage, microbatches
        return self._passing[1] or None

    def warmup_microbatches(self, stages: int, chunks_per_stage: int, microbatches: int) -> int:
        """Those outside of the steady state, in whole periods."""
        del stages, chunks_per_stage
        once, period = self._passing
        return min(microbatches, period * -(-once // period)) if period else microbatches

    def problems(self, stages: int, chunks_per_stage: int, microbatches: int) -> list[Obstacle]:
        """Another shape than the file's, passes that are missing or too many, or a deadlock."""
        if obstacles := self._of_other_shape(stages, chunks_per_stage):
            return obstacles
        # A frozen section has a hash, which pyright does not see.
        if fault := _fault(self):  # pyright: ignore[reportArgumentType]
            return [Obstacle(_FIELD, fault, "`twin improve --passes 1min` writes orders that run")]
        if obstacles := self._of_other_batch(microbatches):
            return obstacles
        stuck = _stuck(self, self._enough(microbatches))  # pyright: ignore[reportArgumentType]
        return [Obstacle(_FIELD, stuck, "move what it waits for before it")] if stuck else []

    def _enough(self, microbatches: int) -> int:
        """Micro-batches that show a deadlock as well as all: periods for twice those in flight."""
        once, period = self._passing
        most = once + 2 * period * (1 + -(-once // period)) if period else microbatches
        return min(microbatches, most)

    def _of_other_shape(self, stages: int, chunks_per_stage: int) -> list[Obstacle]:
        own = (
            ("parallel.pipeline", "stages", self.stages, stages),
            ("parallel.virtual", "chunks per stage", self.chunks, chunks_per_stage),
        )
        return [
            Obstacle(
                field,
                f"this custom schedule is of {wanted} {noun}, not {given}",
                f"set {field.removeprefix('parallel.')} to {wanted}",
            )
            for field, noun, wanted, given in own
            if wanted != given
        ]

    def _of_other_batch(self, microbatches: int) -> list[Obstacle]:
        once, period = self._passing
        over = microbatches - once
        if over == 0 or (period and over > 0 and over % period == 0):
            return []
        more = f", or more by any multiple of {period}" if period else ""
        message = f"this custom schedule is of {once} micro-batches{more}, not {microbatches}"
        nearest = microbatches - over % period if period and over > 0 else once
        hint = f"make the batch {nearest} micro-batches per data-parallel rank"
        return [Obstacle("train.global_batch", message, hint)]

    @property
    def _passing(self) -> tuple[int, int]:
        """Micro-batches outside of the steady state, and in it."""
        parts, copies = read(self.orders[0]), 2 if self.placement == "mirrored" else 1
        once, body = counts(parts.once), counts(parts.body)
        chunk = parts.all[0][0][1]
        return copies * once["F", chunk], copies * body["F", chunk]


def placed(placement: Placement, stages: int, chunks_per_stage: int) -> ChunkMap:
    """Where the chunks of a placement are."""
    if placement == "looped":
        return looped(stages, chunks_per_stage)
    return v_shaped(stages) if placement == "v" else mirrored(stages)


def custom(
    words: Sequence[Sequence[Turn]], chunk_map: ChunkMap, *, post_validation: bool = False
) -> Custom:
    """The schedule in which stages run these turns, its steady state told apart."""
    stages = len(words)
    chunks = len(chunk_map.stage_of) // stages // chunk_map.copies
    return Custom(
        version=1,
        stages=stages,
        chunks=chunks,
        placement=next(one for one in PLACEMENTS if placed(one, stages, chunks) == chunk_map),
        post_validation=post_validation,
        orders=tuple(map(written, steady(words))),
    )


def text_of(schedule: Custom) -> str:
    """The schedule as a file of its own."""
    fields = schedule.model_dump(mode="json", exclude={"orders"})
    head = [f"{key}: {str(value).lower()}" for key, value in fields.items()]
    return "\n".join((*head, "orders:", *(f'- "{line}"' for line in schedule.orders), ""))


def _numbered(turns: Iterable[Turn], chunk_map: ChunkMap) -> Iterator[Action]:
    """The actions of a stage: each pass takes the next micro-batch of its chunk. Where there are
    two copies of the model, every other one passes a chunk."""
    done: Counter[tuple[str, int]] = Counter()
    late: dict[int, deque[int]] = {}
    for turn in turns:
        for kind, chunk in turn:
            if kind == "W":
                yield Action("W", chunk, late[chunk].popleft())
                continue
            way = "F" if kind == "F" else "B"
            number = chunk // chunk_map.parts + chunk_map.copies * done[way, chunk]
            done[way, chunk] += 1
            if kind == "I":
                late.setdefault(chunk, deque()).append(number)
            yield Action(kind, chunk, number, kind == "F" and len(turn) > 1)


@lru_cache(maxsize=16)
def _fault(schedule: Custom) -> str:
    """What is wrong in the lines, whatever the number of micro-batches; empty: nothing."""
    stages, chunks, placement = schedule.stages, schedule.chunks, schedule.placement
    wanted = {"looped": chunks, "v": 2, "mirrored": 1}[placement]
    if chunks != wanted:
        return f"placement {placement} has chunks: {wanted}, not {chunks}"
    if len(schedule.orders) != stages:
        return f"there are {len(schedule.orders)} lines of passes for {stages} stages"
    stage_of = placed(placement, stages, chunks).stage_of
    seen: set[tuple[int, int]] = set()
    for stage, line in enumerate(schedule.orders):
        own = [chunk for chunk, place in enumerate(stage_of) if place == stage]
        try:
            fault = _fault_of_line(line, own, seen)
        except ValueError as error:
            fault = str(error)
        if fault:
            return f"stage {stage}: {fault}"
    return ""


def _fault_of_line(line: str, own: Sequence[int], seen: set[tuple[int, int]]) -> str:
    """What is wrong in a stage's line; `seen` are the numbers of passes that lines before had."""
    parts = read(line)
    if fault := _misplaced(parts.all, own):
        return fault
    once, body = counts(parts.once), counts(parts.body)
    for chunk in own:
        for kind, noun in (("F", "forwards"), ("B", "backwards")):
            seen.add((passes(once, kind, chunk), passes(body, kind, chunk)))
            if len(seen) > 1:
                (one, steady), (other, often) = sorted(seen)
                return (
                    f"{noun} of chunk {chunk} come another number of times than passes before: "
                    f"{one} or {other} outside of brackets, {steady} or {often} in them"
                )
    return "" if seen != {(0, 0)} else "there are no passes"


def _misplaced(turns: Sequence[Turn], own: Sequence[int]) -> str:
    """A pass of another stage's chunk, or one that its stage cannot run yet."""
    alive: Counter[int] = Counter()
    late: Counter[int] = Counter()
    for place, turn in enumerate(turns, 1):
        for kind, chunk in turn:
            if chunk not in own:
                return f"it runs {chunk}{kind}, and holds chunks {', '.join(map(str, own))}"
            alive[chunk] += {"F": 1, "B": -1, "I": -1, "W": 0}[kind]
            late[chunk] += {"F": 0, "B": 0, "I": 1, "W": -1}[kind]
            if alive[chunk] < 0 or late[chunk] < 0:
                needed = "I" if kind == "W" else "F"
                return f"turn {place} is {chunk}{kind}, before its {chunk}{needed}"
    return next((f"{chunk}I is there without its {chunk}W" for chunk in own if late[chunk]), "")


@lru_cache(maxsize=16)
def _stuck(schedule: Custom, microbatches: int) -> str:
    """Where stages wait for each other for ever; empty: nowhere."""
    shape = schedule.stages, schedule.chunks
    orders = [schedule.stage_order(stage, *shape, microbatches) for stage in range(shape[0])]
    chunk_map = schedule.chunk_map(*shape)
    at, done, moved = [0] * len(orders), set[tuple[bool, int, int]](), True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while at[stage] < len(order):
                turn = order[at[stage] : at[stage] + 1 + order[at[stage]].paired]
                if any(need not in done for one in turn for need in _needs(one, chunk_map)):
                    break
                done.update((one.kind == "F", one.chunk, one.microbatch) for one in turn)
                at[stage] += len(turn)
                moved = True
    for stage, order in enumerate(orders):
        if at[stage] < len(order):
            one = order[at[stage]]
            return (
                f"deadlock: stage {stage} waits for ever before {one.chunk}{one.kind} of "
                f"micro-batch {one.microbatch}, its pass number {at[stage] + 1}"
            )
    return ""


def _needs(action: Action, chunk_map: ChunkMap) -> list[tuple[bool, int, int]]:
    """What must have ended before a pass: whether it is a forward, its chunk, its micro-batch."""
    chunk, number = action.chunk, action.microbatch
    if action.kind == "W":
        return []
    beside = (chunk_map.before if action.kind == "F" else chunk_map.after)[chunk]
    found = [] if beside is None else [(action.kind == "F", beside, number)]
    return found if action.kind == "F" else [(True, chunk, number), *found]
