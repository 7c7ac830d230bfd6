"""AdamW in mixed precision: fp32 master weight, momentum and variance.

Source: Loshchilov and Hutter 2019, "Decoupled weight decay regularization"; the 12 bytes of state
per weight are K = 12 of Rajbhandari et al. 2020 (ZeRO), section 3.1. DeepSeek-V3 keeps both moments
in bf16, 8 bytes per weight, with fp32 master weights and gradients (arXiv:2412.19437, section
3.3.3).

In 8 bits: `int8` has a scale in fp32 per 256 values, and one kernel reads and writes the numbers as
they are (Dettmers et al. 2021, "8-bit optimizers via block-wise quantization", arXiv:2110.02861;
bitsandbytes, blocks of 256 since 0.44). `fp8` is that of Transformer Engine's FusedAdam, one scale
per tensor: a moment is made fp32 before the update (1 + 4 bytes), updated (4 + 4), its maximum
found (4), and made FP8 again (4 + 1). Each is a kernel per tensor, counted as one for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal, final

from twin.arch.ops import Weights, Work
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
from twin.spec.base import UNWRITTEN

Moment = Literal["fp32", "bf16", "fp8", "int8"]
"""Numbers of a moment."""
_BYTES: Final[Mapping[Moment, float]] = MappingProxyType(
    {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0 + 4.0 / 256}
)
"""Bytes of each, with its part of a scale."""
_AROUND: Final = (1 + 4) + (4 + 4) + 4 + (4 + 1) - 2 * 1
"""Bytes of a moment in FP8 that move beside reading and writing it once: the update is counted as
if it read and wrote FP8."""
_CASTS: Final = 3
"""Kernels around the update for a moment in FP8."""


@final
class AdamW(Optimizer):
    """Elementwise: a rank needs nothing but its own shard."""

    kind: Literal["adamw"] = "adamw"
    moments: Moment = "fp32"
    """numbers of momentum and variance: fp8 with a scale per tensor, as Transformer Engine's
    FusedAdam; int8 with a scale per 256 values, as bitsandbytes"""
    variance: Annotated[Moment | None, UNWRITTEN] = None
    """numbers of the variance; null: as the momentum"""

    @property
    def _both(self) -> tuple[Moment, Moment]:
        return self.moments, self.variance or self.moments

    @property
    def _moment(self) -> float:
        """Bytes of one moment of a weight, of both the mean."""
        return sum(_BYTES[one] for one in self._both) / 2

    def state_bytes(self, weights: Weights) -> tuple[float, float]:
        """12 bytes for each weight, 8 with moments in bf16, 6 and a little in 8 bits."""
        each = MASTER_BYTES + 2 * self._moment
        return each * dense_weights(weights), each * weights.expert

    def step(self, share: Share) -> OptimizerStep:
        """One pass over the local shard; no traffic of its own."""
        update = adamw_update(share.learned, self._moment)
        casts = self._both.count("fp8")
        if casts:
            update += Work(0.0, _AROUND * casts * share.learned, _CASTS * casts)
        return OptimizerStep(works=(("update", update),))

    def on_host(self, share: Share) -> tuple[Phase, ...]:
        """The same pass, in host memory."""
        return adamw_on_host(share.learned, self._moment)
