"""What every pipeline schedule is: settings a planner writes, and the order they stand for.

A schedule says what each stage runs and in which order, never when: a simulator gives the passes
durations, a trainer executes them. Chunks are global. Most schedules loop: with p stages of v
chunks, chunk c lives on stage c mod p, and a micro-batch visits chunks 0 to p v - 1 forwards, then
backwards; `chunk_map` says so, and bidirectional schedules say otherwise. Orders hold no sends and
receives: those follow from the chunks.

A new schedule is one new module in this package, with one final subclass of `Schedule`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, Literal, NamedTuple

from twin.spec.base import Spec

Pass = Literal["F", "B", "I", "W"]
"""`F` forward, `B` whole backward, `I` backward for the input only, `W` for the weights only."""


@dataclass(frozen=True, slots=True)
class Action:
    """Run one pass of one micro-batch through one chunk.

    `chunk` is global; the schedule's `chunk_map` says which stage holds it. A `paired` action is a
    forward that runs together with the backward (`B` or `I`) after it in the list, block by block:
    while one of the two communicates, the other computes.
    """

    kind: Pass
    chunk: int
    microbatch: int
    paired: bool = False


def ends_of(order: Iterable[Action]) -> frozenset[Action]:
    """The first forward and the last backward (`B` or `W`) of each chunk in a stage's order."""
    first: dict[int, Action] = {}
    last: dict[int, Action] = {}
    for action in order:
        if action.kind == "F":
            first.setdefault(action.chunk, action)
        elif action.kind != "I":
            last[action.chunk] = action
    return frozenset((*first.values(), *last.values()))


class Obstacle(NamedTuple):
    """Why a schedule cannot run: dotted path of the guilty field, what is wrong, nearest fix."""

    field: str
    message: str
    hint: str


@dataclass(frozen=True)
class ChunkMap:
    """Where chunks live and in which order micro-batches visit them, by global chunk."""

    stage_of: tuple[int, ...]
    part_of: tuple[int, ...]
    """Which part of the model the chunk runs; two chunks of one part are two copies of its
    weights."""
    after: tuple[int | None, ...]
    """The chunk that takes this one's output; None for the last."""

    @cached_property
    def before(self) -> tuple[int | None, ...]:
        """The chunk whose output this one takes; None for the first."""
        source: dict[int | None, int] = {after: chunk for chunk, after in enumerate(self.after)}
        return tuple(source.get(chunk) for chunk in range(len(self.after)))

    @property
    def parts(self) -> int:
        """Parts that the model is cut into."""
        return max(self.part_of) + 1

    @property
    def copies(self) -> int:
        """Copies of every part in one pipeline."""
        return len(self.part_of) // self.parts


def looped(stages: int, chunks_per_stage: int) -> ChunkMap:
    """Chunk c is part c of the model and lives on stage c mod stages."""
    chunks = range(stages * chunks_per_stage)
    return ChunkMap(
        stage_of=tuple(chunk % stages for chunk in chunks),
        part_of=tuple(chunks),
        after=(*chunks[1:], None),
    )


def v_shaped(stages: int) -> ChunkMap:
    """Two chunks per stage: parts go down the stages and up again (ZB-V, Qi et al. 2024,
    arXiv:2405.15362)."""
    chunks = range(2 * stages)
    return ChunkMap(
        stage_of=(*range(stages), *reversed(range(stages))),
        part_of=tuple(chunks),
        after=(*chunks[1:], None),
    )


def mirrored(stages: int) -> ChunkMap:
    """Two copies of the model: chunks 0 to p - 1 go up the stages, chunks p to 2 p - 1 go down."""
    return ChunkMap(
        stage_of=(*range(stages), *reversed(range(stages))),
        part_of=(*range(stages), *range(stages)),
        after=(*range(1, stages), None, *range(stages + 1, 2 * stages), None),
    )


class Schedule(Spec):
    """The order in which the stages of a pipeline run their passes."""

    # Each member narrows it to its one literal. Any, because type checkers see no frozen field here
    # and forbid to narrow a mutable str.
    kind: Any

    def order(
        self, stages: int, chunks_per_stage: int, microbatches: int
    ) -> tuple[tuple[Action, ...], ...]:
        """One ordered list of actions per stage, each complete for one training step.

        Raises:
            ValueError: `problems` names why this schedule cannot run this shape.
        """
        # A frozen section has a hash, which pyright does not see.
        return _orders(self, stages, chunks_per_stage, microbatches)  # pyright: ignore[reportArgumentType]

    def chunk_map(self, stages: int, chunks_per_stage: int) -> ChunkMap:
        """Where the chunks live; looped unless a schedule says otherwise."""
        return looped(stages, chunks_per_stage)

    @property
    def pairs(self) -> bool:
        """Whether forwards run together with backwards of other micro-batches."""
        return False

    @property
    def staggered(self) -> bool:
        """Whether stages end a step as staggered as they begin it, and wait for no other at the end
        of it."""
        return False

    @abstractmethod
    def stage_order(
        self, stage: int, stages: int, chunks_per_stage: int, microbatches: int
    ) -> tuple[Action, ...]:
        """The actions of one stage, for a shape without `problems`."""

    def period(self, stages: int, chunks_per_stage: int, microbatches: int) -> int | None:  # noqa: ARG002 (members may use them)
        """Micro-batches after which the steady state's pattern of actions repeats; None: never. One
        where each micro-batch brings the same passes to every stage.

        A step shorter by whole periods, but no shorter than `warmup_microbatches`, has the same
        warm-up, the same pattern and the same cool-down.
        """
        return 1

    @abstractmethod
    def warmup_microbatches(self, stages: int, chunks_per_stage: int, microbatches: int) -> int:
        """Micro-batches, in whole periods, that hold every forward of every stage's warm-up."""

    def problems(self, stages: int, chunks_per_stage: int, microbatches: int) -> list[Obstacle]:  # noqa: ARG002 (members may use them)
        """Why this schedule cannot run this shape, each with the nearest fix; empty when it can. A
        schedule runs one chunk per stage unless it says otherwise."""
        if chunks_per_stage == 1:
            return []
        return [
            Obstacle(
                "parallel.virtual",
                f"{self.kind} runs one chunk per stage, not {chunks_per_stage}",
                "set virtual to 1, or schedule kind to interleaved_1f1b",
            )
        ]


@lru_cache(maxsize=8)
def _orders(
    schedule: Schedule, stages: int, chunks_per_stage: int, microbatches: int
) -> tuple[tuple[Action, ...], ...]:
    """The last few orders: memory, simulation and its proof ask for the same."""
    if obstacles := schedule.problems(stages, chunks_per_stage, microbatches):
        raise ValueError(f"{obstacles[0].message}; {obstacles[0].hint}")
    return tuple(
        schedule.stage_order(stage, stages, chunks_per_stage, microbatches)
        for stage in range(stages)
    )


def alternate(
    forwards: Sequence[Action], backwards: Sequence[Action], warmup: int
) -> tuple[Action, ...]:
    """`warmup` forwards, then a forward and a backward in turn, then the backwards that are left.

    Both sequences are of one length, which `warmup` does not exceed.
    """
    in_turn = chain.from_iterable(zip(forwards[warmup:], backwards, strict=False))
    return (*forwards[:warmup], *in_turn, *backwards[len(forwards) - warmup :])


def in_halves(chunk: int, microbatches: int, warmup: int, late: int) -> tuple[Action, ...]:
    """`warmup` forwards; then a forward, the input's gradient, and the weights' of the micro-batch
    `late` before; then what is left. Neither number exceeds the micro-batches.
    """
    order = [Action("F", chunk, m) for m in range(warmup)]
    for m in range(microbatches):
        if m + warmup < microbatches:
            order.append(Action("F", chunk, m + warmup))
        order.append(Action("I", chunk, m))
        if m >= late:
            order.append(Action("W", chunk, m - late))
    return (*order, *(Action("W", chunk, m) for m in range(microbatches - late, microbatches)))
