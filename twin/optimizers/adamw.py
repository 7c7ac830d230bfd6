"""AdamW in mixed precision: fp32 master weight, momentum and variance.

Source: Loshchilov and Hutter 2019, "Decoupled weight decay regularization"; the 12 bytes of state
per weight are K = 12 of Rajbhandari et al. 2020 (ZeRO), section 3.1. DeepSeek-V3 keeps both moments
in bf16, 8 bytes per weight, with fp32 master weights and gradients (arXiv:2412.19437, section
3.3.3).
"""

from __future__ import annotations

from typing import Literal, final

from twin.arch.ops import Weights
from twin.optimizers.base import (
    MASTER_BYTES,
    Optimizer,
    OptimizerStep,
    Phase,
    Share,
    adamw_on_host,
    adamw_update,
    dense_weights,
)


@final
class AdamW(Optimizer):
    """Elementwise: a rank needs nothing but its own shard."""

    kind: Literal["adamw"] = "adamw"
    moments: Literal["fp32", "bf16"] = "fp32"
    """numbers of momentum and variance"""

    @property
    def _moment(self) -> float:
        """Bytes of one moment of a weight."""
        return 4.0 if self.moments == "fp32" else 2.0

    def state_bytes(self, weights: Weights) -> tuple[float, float]:
        """12 bytes for each weight, 8 with moments in bf16."""
        each = MASTER_BYTES + 2 * self._moment
        return each * dense_weights(weights), each * weights.expert

    def step(self, share: Share) -> OptimizerStep:
        """One pass over the local shard; no traffic of its own."""
        return OptimizerStep(works=(("update", adamw_update(share.learned, self._moment)),))

    def on_host(self, share: Share) -> tuple[Phase, ...]:
        """The same pass, in host memory."""
        return adamw_on_host(share.learned, self._moment)
