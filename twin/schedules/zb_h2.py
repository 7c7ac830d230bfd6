"""ZB-H2: twice the forwards first, weight gradients twice as late, and no bubble at all.

Source: Qi et al. 2023, "Zero bubble pipeline parallelism", arXiv:2401.10241, sections 2.2 and 2.3,
figure 3 and table 2. As ZB-H1, but stage s of p runs 2 (p - 1 - s) forwards and one more before its
first backward, which fills the bubble before that, and each W 2 s micro-batches late, which fills
the cool-down. Stage s keeps all of 2 (p - s) - 1 micro-batches and what W needs of 2 s more, so
2 p - 1 in all: about twice what the first stage of 1F1B keeps. With equal stages, free
communication, W no longer than F and I, and m >= 2 p - 1 the bubble is (p - 1)(F + B - 3 W), B
being the whole backward: nothing where F = I = W.

`weights_late` puts W off further. The paper finds orders by measured times that leave next to no
bubble where W is shorter, with about as much memory (ZB-2p, section 3). By hand (F + I) / W,
rounded up, comes to the same (OURS): with the times of table 9 nine of the twelve bubbles of ZB-2p
in table 5, and the others to 0.3 % of the step. It breaks where micro-batches are fewer than the
last stage would put off.

Stages end as staggered as they begin, which needs `post_validation` (section 4): a stage does not
wait for the others' part of the gradient norm, and takes its update back if it turns out too large.
Left out: what taking back costs, which is rare, and copies that optimizers need for it whose update
cannot be undone in place (AdamW's can, appendix C). Without it stages end together, and the bubble
is at least (p - 1) F; so it is where a tied embedding makes the first stage wait for the last.
"""

from __future__ import annotations

from typing import Literal, final

from twin.schedules.base import Action, Schedule, in_halves
from twin.spec.base import Count, Flag


@final
class ZeroBubbleH2(Schedule):
    """ZB-H1 with twice the forwards first and weight gradients twice as late: no bubble, for twice
    the activations."""

    kind: Literal["zb_h2"] = "zb_h2"
    weights_late: Count = 2
    """micro-batches that weight gradients run late, per stage before"""
    post_validation: Flag = True
    """stages update without waiting for each other's part of the gradient norm"""

    @property
    def staggered(self) -> bool:
        """As `post_validation` says."""
        return self.post_validation

    def stage_order(
        self, stage: int, stages: int, chunks_per_stage: int, microbatches: int
    ) -> tuple[Action, ...]:
        """Warm-up of two forwards per later stage; then F, I, and W of an older micro-batch."""
        del chunks_per_stage
        warmup = min(microbatches, 2 * (stages - 1 - stage))
        return in_halves(stage, microbatches, warmup, min(microbatches, self.weights_late * stage))

    def warmup_microbatches(self, stages: int, chunks_per_stage: int, microbatches: int) -> int:
        """All forwards before the first W of the first stage or the last, whose is later."""
        del chunks_per_stage
        return min(microbatches, max(2, self.weights_late) * (stages - 1))
