"""ZB-H1: 1F1B with the backward in two halves, so that weight gradients fill the bubble.

Source: Qi et al. 2023, "Zero bubble pipeline parallelism", arXiv:2401.10241, section 2.1 and figure
3. As 1F1B, but a stage sends the input's gradient (I) before it computes the weights' (W), and
stage s of p runs each W s micro-batches late: what it puts off fills its cool-down. Each stage
keeps at most p micro-batches, as the first stage of 1F1B does, those that wait for W included.
With equal stages, free communication and m >= p the bubble is (p - 1)(F + B - 2 W), B being the
whole backward (table 2; table in deepseek-ai/DualPipe, README, where it is called ZB1P). The orders
that the paper searches for with as much memory (ZB-1p) have the same bubbles (table 5). That stages
update without waiting for each other (section 4; `twin.schedules.zb_h2`) is left out: the first
stage begins first and ends last, so steps would come no faster.
"""

from __future__ import annotations

from typing import Literal, final

from twin.schedules.base import Action, Schedule, in_halves


@final
class ZeroBubbleH1(Schedule):
    """1F1B with weight gradients put off by as many micro-batches as there are stages before."""

    kind: Literal["zb_h1"] = "zb_h1"

    def stage_order(
        self, stage: int, stages: int, chunks_per_stage: int, microbatches: int
    ) -> tuple[Action, ...]:
        """Warm-up of one forward per later stage; then F, I, and W of an older micro-batch."""
        del chunks_per_stage
        warmup = min(microbatches, stages - 1 - stage)
        return in_halves(stage, microbatches, warmup, min(microbatches, stage))

    def warmup_microbatches(self, stages: int, chunks_per_stage: int, microbatches: int) -> int:
        """One per stage after the first, and as many again until the last stage's first W."""
        del chunks_per_stage
        return min(microbatches, 2 * (stages - 1))
