"""MuonClip: Muon with QK-clip, which keeps attention logits from growing.

Source: Kimi K2 report (arXiv:2507.20534), algorithm 1. After the update, the query and key weights
of every head whose largest logit of the step is above a threshold are scaled down. The largest
logit per head comes out of the attention kernels and costs nothing there; the ranks that hold the
same heads then agree on it, by one small all-reduce for all layers of a rank, and each scales the
fp32 masters of its shard (`reference.trainer.step`; Megatron-LM has one all-reduce per layer,
megatron/core/optimizer/qk_clip.py). Every head is counted as clipped, which
is an upper bound: late in training none is.
"""

from __future__ import annotations

from typing import Final, Literal, final

from twin.arch.ops import Work
from twin.optimizers.base import Maxima, Share
from twin.optimizers.orthogonal import Orthogonal

LOGIT_BYTES: Final = 4.0
"""One fp32 number per head."""
SCALE_BYTES: Final = 8.0
"""Per weight: the fp32 master is read and written."""
PROJECTIONS: Final = 2
"""Kernels per layer: one for queries, one for keys with values (whose factor is 1)."""


@final
class MuonClip(Orthogonal):
    """Muon, then QK-clip on the projections to queries and keys."""

    kind: Literal["muonclip"] = "muonclip"

    def clip(self, share: Share) -> tuple[Work, Maxima | None]:
        """Scaling of the rank's shard, and the maxima of its heads."""
        scaled = share.local(share.query_key, 0)
        work = Work(bytes=SCALE_BYTES * scaled, kernels=PROJECTIONS * share.attentions)
        return work, Maxima("qk_maxima", LOGIT_BYTES * share.heads)
