"""1F1B: one forward, one backward, as soon as the first micro-batch comes back.

Source: Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters using
Megatron-LM", arXiv:2104.04473, section 2.2.1 (PipeDream-Flush). Stage s of p runs min(m, p - 1 - s)
forwards first, so it keeps the activations of at most min(m, p - s) micro-batches. With equal
stages and free communication the bubble is (p - 1) / (m + p - 1) of the step, as for GPipe.
"""

from __future__ import annotations

from typing import Literal, final

from twin.schedules.base import Action, Schedule, alternate


@final
class OneForwardOneBackward(Schedule):
    """One forward and one backward in turn; one chunk per stage."""

    kind: Literal["1f1b"] = "1f1b"

    def stage_order(
        self, stage: int, stages: int, chunks_per_stage: int, microbatches: int
    ) -> tuple[Action, ...]:
        """Warm-up of one forward per later stage, then forward and backward in turn."""
        del chunks_per_stage
        forwards = [Action("F", stage, m) for m in range(microbatches)]
        backwards = [Action("B", stage, m) for m in range(microbatches)]
        return alternate(forwards, backwards, min(microbatches, stages - 1 - stage))

    def warmup_microbatches(self, stages: int, chunks_per_stage: int, microbatches: int) -> int:
        """One per stage after the first (at most all)."""
        del chunks_per_stage
        return min(microbatches, stages - 1)
