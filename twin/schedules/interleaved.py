"""Interleaved 1F1B: several chunks per stage shorten the bubble and cost activations and messages.

Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2.2. The order is that of PyTorch's
`ScheduleInterleaved1F1B` (torch 2.13, torch/distributed/pipelining/schedules.py), which also takes
micro-batches that the stages do not divide.

Micro-batches go in R = max(1, m // p) equal rounds of g = m / R (g = p where p divides m): a stage
takes the g micro-batches of a round through its first chunk, then through its second, and so on;
backwards through its last chunk first. Stage s of p with v chunks runs
min(m v, (v - 1) g + 2 (p - 1 - s)) forwards first. With equal chunks, free communication and p
dividing m the bubble is (p - 1) / (v m + p - 1) of the step.

Three settings make it Kimi K2's (arXiv:2507.20534, section 2.4.1 and figure 7; Megatron-LM has the
same under `overlap_moe_expert_parallel_comm` and `delay_wgrad_compute`). One more warm-up forward
lets every stage pair a forward with the backward of an older micro-batch, so that the expert
all-to-all of one runs under the compute of the other. Without it the last stage would pair a
forward with the backward that waits for this very forward. Deferred weight gradients run after the
gradient of the input has left for the previous stage, under that traffic.

On a pipeline of one stage with one chunk the extra forward alone makes the pairs: each forward
with the backward of the micro-batch before it (`combined_1f1b.py` of Megatron-LM). One stage sends
no gradient, so none is put off: weight gradients of a layer come before the next layer's pass
(`model_chunk_schedule_plan.py`, `backward_dw`).
"""

from __future__ import annotations

from typing import Annotated, Literal, final

from twin.schedules.base import Action, Obstacle, Schedule
from twin.spec.base import Exactly, Flag


@final
class Interleaved(Schedule):
    """One forward and one backward in turn, over two or more chunks per stage."""

    kind: Literal["interleaved_1f1b"] = "interleaved_1f1b"
    extra_warmup: Annotated[Literal[0, 1], Exactly] = 0
    """forwards before the first backward beyond the usual"""
    overlap_all_to_all: Flag = False
    """expert all-to-all of one micro-batch under the compute of another"""
    defer_weight_grad: Flag = False
    """weight gradients after the input's gradient has been sent"""

    @property
    def pairs(self) -> bool:
        """As `overlap_all_to_all` says."""
        return self.overlap_all_to_all

    def stage_order(
        self, stage: int, stages: int, chunks_per_stage: int, microbatches: int
    ) -> tuple[Action, ...]:
        """A round of all chunks but one and two forwards per later stage, then in turn."""
        size = _round_size(stages, microbatches)
        chunks = range(stage, stages * chunks_per_stage, stages)
        rounds = [range(first, first + size) for first in range(0, microbatches, size)]
        forwards = [Action("F", c, m) for turn in rounds for c in chunks for m in turn]
        backwards = [(c, m) for turn in rounds for c in reversed(chunks) for m in turn]
        warmup = min(self._warmup(stage, stages, chunks_per_stage, size), len(forwards))
        order = forwards[:warmup]
        paired = self.overlap_all_to_all
        for forward, backward in zip(forwards[warmup:], backwards, strict=False):
            order.append(Action("F", forward.chunk, forward.microbatch, paired))
            order += self._backward(*backward, stages)
        for backward in backwards[len(forwards) - warmup :]:
            order += self._backward(*backward, stages)
        return tuple(order)

    def _backward(self, chunk: int, microbatch: int, stages: int) -> tuple[Action, ...]:
        """The backward, whole or as its two halves."""
        if stages == 1 or not self.defer_weight_grad:
            return (Action("B", chunk, microbatch),)
        return Action("I", chunk, microbatch), Action("W", chunk, microbatch)

    def _warmup(self, stage: int, stages: int, chunks_per_stage: int, size: int) -> int:
        """Chunk forwards before the first backward, were there micro-batches enough."""
        return (chunks_per_stage - 1) * size + 2 * (stages - 1 - stage) + self.extra_warmup

    def period(self, stages: int, chunks_per_stage: int, microbatches: int) -> int:
        """One round: as many micro-batches as stages where the stages divide the micro-batches."""
        del chunks_per_stage
        return _round_size(stages, microbatches)

    def warmup_microbatches(self, stages: int, chunks_per_stage: int, microbatches: int) -> int:
        """The rounds that the first stage's warm-up reaches into, one or two (at most all)."""
        size = _round_size(stages, microbatches)
        forwards = self._warmup(0, stages, chunks_per_stage, size)
        return min(microbatches, -(-forwards // (size * chunks_per_stage)) * size)

    def problems(self, stages: int, chunks_per_stage: int, microbatches: int) -> list[Obstacle]:
        """One chunk per stage, micro-batches that do not go in equal rounds, or pairs that wait
        for themselves."""
        obstacles: list[Obstacle] = []
        if chunks_per_stage == 1 and not (self.overlap_all_to_all and stages == 1):
            obstacles.append(
                Obstacle(
                    "parallel.virtual",
                    f"{self.kind} needs two or more chunks per stage; with one it is plain 1f1b",
                    "set virtual to 2, or schedule kind to 1f1b",
                )
            )
        if not _even(stages, microbatches):
            obstacles.append(_uneven_rounds(stages, microbatches))
        if self.overlap_all_to_all and not self.extra_warmup:
            obstacles.append(_PAIRS_WAIT)
        return obstacles


def _rounds(stages: int, microbatches: int) -> int:
    return max(1, microbatches // stages)


def _even(stages: int, microbatches: int) -> bool:
    return microbatches % _rounds(stages, microbatches) == 0


def _round_size(stages: int, microbatches: int) -> int:
    """Micro-batches per round."""
    return microbatches // _rounds(stages, microbatches)


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


_PAIRS_WAIT = Obstacle(
    "parallel.schedule.overlap_all_to_all",
    "overlap_all_to_all without an extra warm-up forward deadlocks: the last stage would pair its"
    " first backward with the forward that this backward waits for",
    "set extra_warmup to 1 (one more chunk's activations per stage)",
)
