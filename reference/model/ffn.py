"""The SwiGLU feed-forward block (Shazeer 2020, arXiv:2002.05202): down(silu(gate x) * up x).

Shapes: D hidden, F width of the block.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reference.kernels.swiglu import swiglu
from reference.memory.stash import mark, op
from reference.model.linear import Linear


class SwiGlu(nn.Module):
    """Gate and up are one product, their weight [2F, D] with the gate's rows first."""

    def __init__(self, hidden: int, width: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.up = Linear(hidden, 2 * width, device, dtype)
        self.down = Linear(width, hidden, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] to [..., D], before the residual."""
        gate_up = mark("swiglu_input", self.up(x))
        return self.down(op("swiglu", swiglu, gate_up, None))
