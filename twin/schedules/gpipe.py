"""GPipe: all forwards, then all backwards.

Source: Huang et al. 2019, "GPipe", arXiv:1811.06965, section 2.3. Backwards run in the order of the
forwards, as in PyTorch's `ScheduleGPipe`; the paper's figure draws the reverse. Each stage keeps
the activations of all m micro-batches. With equal stages and free communication the bubble is
(p - 1) / (m + p - 1) of the step.
"""

from __future__ import annotations

from typing import Literal, final

from twin.schedules.base import Action, Pass, Schedule

_PASSES: tuple[Pass, Pass] = ("F", "B")


@final
class GPipe(Schedule):
    """All forwards, then all backwards; one chunk per stage."""

    kind: Literal["gpipe"] = "gpipe"

    def stage_order(
        self, stage: int, stages: int, chunks_per_stage: int, microbatches: int
    ) -> tuple[Action, ...]:
        """Forwards of micro-batches 0 to m - 1, then their backwards; the same on every stage."""
        del stages, chunks_per_stage
        return tuple(Action(step, stage, m) for step in _PASSES for m in range(microbatches))

    def period(self, stages: int, chunks_per_stage: int, microbatches: int) -> None:
        """None: no pattern of forwards and backwards repeats."""
        del stages, chunks_per_stage, microbatches

    def warmup_microbatches(self, stages: int, chunks_per_stage: int, microbatches: int) -> int:
        """All: no backward runs before the last forward."""
        del stages, chunks_per_stage
        return microbatches
