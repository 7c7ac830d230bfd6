"""Interleaved 1F1B: several chunks per stage shorten the bubble and cost activations and messages.

Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2.2. The order is that of PyTorch's
`ScheduleInterleaved1F1B` (torch 2.13, torch/distributed/pipelining/schedules.py), which also takes
micro-batches that the stages do not divide.

Micro-batches go in R = max(1, m // p) equal rounds of g = m / R (g = p where p divides m): a stage
takes the g micro-batches of a round through its first chunk, then through its second, and so on;
backwards through its last chunk first. Stage s of p with v chunks runs
min(m v, (v - 1) g + 2 (p - 1 - s)) forwards first. With equal chunks, free communication and p
dividing m the bubble is (p - 1) / (v m + p - 1) of the step.
"""

from __future__ import annotations

from typing import Literal, final

from twin.schedules.action import Action
from twin.schedules.base import Obstacle, Schedule, alternate


@final
class Interleaved(Schedule):
    """One forward and one backward in turn, over two or more chunks per stage."""

    kind: Literal["interleaved_1f1b"] = "interleaved_1f1b"

    def stage_order(
        self, stage: int, stages: int, chunks_per_stage: int, microbatches: int
    ) -> tuple[Action, ...]:
        """A round of all chunks but one and two forwards per later stage, then in turn."""
        size = _round_size(stages, microbatches)
        chunks = range(stage, stages * chunks_per_stage, stages)
        rounds = [range(first, first + size) for first in range(0, microbatches, size)]
        forwards = [Action("F", c, m) for turn in rounds for c in chunks for m in turn]
        backwards = [Action("B", c, m) for turn in rounds for c in reversed(chunks) for m in turn]
        warmup = _warmup(stage, stages, chunks_per_stage, size)
        return alternate(forwards, backwards, min(warmup, len(forwards)))

    def period(self, stages: int, chunks_per_stage: int, microbatches: int) -> int:
        """One round: as many micro-batches as stages where the stages divide the micro-batches."""
        del chunks_per_stage
        return _round_size(stages, microbatches)

    def warmup_microbatches(self, stages: int, chunks_per_stage: int, microbatches: int) -> int:
        """The rounds that the first stage's warm-up reaches into, one or two (at most all)."""
        size = _round_size(stages, microbatches)
        forwards = _warmup(0, stages, chunks_per_stage, size)
        return min(microbatches, -(-forwards // (size * chunks_per_stage)) * size)

    def problems(self, stages: int, chunks_per_stage: int, microbatches: int) -> list[Obstacle]:
        """One chunk per stage, or micro-batches that do not go in equal rounds."""
        obstacles: list[Obstacle] = []
        if chunks_per_stage == 1:
            obstacles.append(
                Obstacle(
                    "parallel.virtual",
                    f"{self.kind} needs two or more chunks per stage; with one it is plain 1f1b",
                    "set virtual to 2, or schedule kind to 1f1b",
                )
            )
        if not _even(stages, microbatches):
            obstacles.append(_uneven_rounds(stages, microbatches))
        return obstacles


def _rounds(stages: int, microbatches: int) -> int:
    return max(1, microbatches // stages)


def _even(stages: int, microbatches: int) -> bool:
    return microbatches % _rounds(stages, microbatches) == 0


def _round_size(stages: int, microbatches: int) -> int:
    """Micro-batches per round."""
    return microbatches // _rounds(stages, microbatches)


def _warmup(stage: int, stages: int, chunks_per_stage: int, size: int) -> int:
    """Chunk forwards before the first backward, were there micro-batches enough."""
    return (chunks_per_stage - 1) * size + 2 * (stages - 1 - stage)


def _uneven_rounds(stages: int, microbatches: int) -> Obstacle:
    # Multiples of the stages always go, so both searches end within `stages` steps.
    below = next(m for m in range(microbatches, 0, -1) if _even(stages, m))
    above = next(m for m in range(microbatches, microbatches + stages) if _even(stages, m))
    rounds = _rounds(stages, microbatches)
    return Obstacle(
        "train.global_batch",
        f"interleaved_1f1b on {stages} stages runs {microbatches} micro-batches in {rounds} rounds,"
        " which do not divide them",
        f"make the batch {below} or {above} micro-batches per data-parallel rank"
        f" (any multiple of {stages} goes)",
    )
