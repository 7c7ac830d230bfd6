"""DualPipe: micro-batches from both ends of the pipeline, each forward paired with a backward.

Source: DeepSeek-AI, DeepSeek-V3 technical report, arXiv:2412.19437, section 3.2.1, figures 4 and 5,
and the order of its steps in github.com/deepseek-ai/DualPipe. Half of the micro-batches enter at
the first stage, half at the last. So every stage holds two parts of the model, its own and its
mirror's: parameters and gradients are there twice. Stage s runs part s as chunk s, and part
p - 1 - s as chunk 2 p - 1 - s, for the micro-batches that come from the other end. Even
micro-batches go up, odd ones down.

With equal stages and free communication the bubble is (p / 2 - 1)(F&B + B - 3 W), F&B being a pair,
B the whole backward and W its weight part (report, table 2). A stage keeps the activations of up to
p + 1 micro-batches.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal, final

from twin.schedules.base import Action, ChunkMap, Obstacle, Schedule, mirrored


@final
class DualPipe(Schedule):
    """Two directions at once, one part of the model per stage and direction."""

    kind: Literal["dualpipe"] = "dualpipe"

    @property
    def pairs(self) -> bool:
        """Always: it is what the two directions are for."""
        return True

    def chunk_map(self, stages: int, chunks_per_stage: int) -> ChunkMap:
        """Chunks 0 to p - 1 go up the stages, chunks p to 2 p - 1 go down."""
        del chunks_per_stage
        return mirrored(stages)

    def stage_order(
        self, stage: int, stages: int, chunks_per_stage: int, microbatches: int
    ) -> tuple[Action, ...]:
        """The eight steps of the paper's figure 5, seen from the nearer end of the pipeline: `near`
        micro-batches enter there, `far` ones at the other end."""
        del chunks_per_stage
        depth = min(stage, stages - 1 - stage)
        """Stages to the nearer end."""
        inner = stages // 2 - 1 - depth
        """Stages to the middle."""
        up, down = _Lane(stage, 0), _Lane(2 * stages - 1 - stage, 1)
        near, far = (up, down) if stage < stages // 2 else (down, up)
        late: deque[Action] = deque()
        """Weight gradients put off."""
        order = near.forwards(2 * inner)
        for _ in range(depth + 1):
            order += [near.forward(), far.forward()]
        for _ in range(inner):
            order += [*far.split(late), late.popleft(), far.forward()]
        for turn in range(microbatches // 2 - stages + depth + 1):
            # The two middle stages have the first pair's halves one after the other: shorter.
            paired = turn > 0 or inner > 0
            order += [near.forward(paired=paired), far.backward()]
            order += [far.forward(paired=True), near.backward()]
        for _ in range(inner):
            order += [far.backward(), far.forward(paired=True), near.backward()]
        order += _cool_down(near, far, late, depth)
        for _ in range(inner):
            order += [late.popleft(), *near.split(late)]
        return (*order, *late)

    def period(self, stages: int, chunks_per_stage: int, microbatches: int) -> int:
        """Two: one micro-batch from each end."""
        del stages, chunks_per_stage, microbatches
        return 2

    def warmup_microbatches(self, stages: int, chunks_per_stage: int, microbatches: int) -> int:
        """Two per stage: fewer would not fill the pipeline from both ends."""
        del chunks_per_stage
        return min(microbatches, 2 * stages)

    def problems(self, stages: int, chunks_per_stage: int, microbatches: int) -> list[Obstacle]:
        """More than one chunk per stage, an odd number of stages, or micro-batches that are odd or
        fewer than two per stage."""
        obstacles = super().problems(stages, chunks_per_stage, microbatches)
        if stages % 2:
            message = f"{self.kind} pairs each stage with its mirror, and {stages} is odd"
            hint = f"nearest pipeline {' or '.join(map(str, _even_beside(stages)))}"
            obstacles.append(Obstacle("parallel.pipeline", message, hint))
        if microbatches % 2 or microbatches < 2 * stages:
            message = (
                f"{self.kind} sends half of the micro-batches from each end and needs at least two"
                f" per stage: {microbatches} on {stages} stages"
            )
            wanted = max(2 * stages, microbatches + 1)
            hint = f"make the batch {wanted} micro-batches per data-parallel rank"
            obstacles.append(Obstacle("train.global_batch", message, hint))
        return obstacles


@dataclass(slots=True)
class _Lane:
    """One direction through one stage: the next micro-batch of each pass."""

    chunk: int
    started: int
    """Micro-batch of the next forward."""
    returned: int = field(init=False)
    """Micro-batch of the next backward."""

    def __post_init__(self) -> None:
        self.returned = self.started

    def forward(self, *, paired: bool = False) -> Action:
        self.started += 2
        return Action("F", self.chunk, self.started - 2, paired)

    def forwards(self, count: int) -> list[Action]:
        return [self.forward() for _ in range(count)]

    def backward(self) -> Action:
        self.returned += 2
        return Action("B", self.chunk, self.returned - 2)

    def split(self, late: deque[Action]) -> list[Action]:
        """The input's half of the next backward; its weights' half is put off."""
        self.returned += 2
        late.append(Action("W", self.chunk, self.returned - 2))
        return [Action("I", self.chunk, self.returned - 2)]


def _cool_down(near: _Lane, far: _Lane, late: deque[Action], depth: int) -> list[Action]:
    """Backwards from both ends in turn; the later half of them put their weight gradients off."""
    order: list[Action] = []
    backwards = 2 * (depth + 1)
    for number in range(backwards):
        lane = near if number % 2 else far
        order += lane.split(late) if number >= backwards // 2 else [lane.backward()]
    return order


def _even_beside(stages: int) -> tuple[int, ...]:
    return tuple(even for even in (stages - 1, stages + 1) if even)
