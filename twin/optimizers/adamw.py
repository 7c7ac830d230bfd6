"""AdamW in mixed precision: fp32 master weight, momentum and variance.

Source: Loshchilov and Hutter 2019, "Decoupled weight decay regularization"; the 12 bytes of state
per weight are K = 12 of Rajbhandari et al. 2020 (ZeRO), section 3.1.
"""

from __future__ import annotations

from typing import Literal, final

from twin.arch.ops import Weights
from twin.optimizers.base import Optimizer, OptimizerStep, Share, adamw_update, dense_weights

STATE_BYTES = 12.0
"""Per weight: fp32 master, momentum and variance."""


@final
class AdamW(Optimizer):
    """Elementwise: a rank needs nothing but its own shard."""

    kind: Literal["adamw"] = "adamw"

    def state_bytes(self, weights: Weights) -> tuple[float, float]:
        """12 bytes for each weight."""
        return STATE_BYTES * dense_weights(weights), STATE_BYTES * weights.expert

    def step(self, share: Share) -> OptimizerStep:
        """One pass over the local shard; no traffic of its own."""
        return OptimizerStep(works=(("bandwidth", adamw_update(share.learned)),))
