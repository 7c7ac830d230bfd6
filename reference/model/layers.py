"""Layers that every block is made of: a linear layer without bias, RMSNorm, and SwiGLU.

Sources: RMSNorm, Zhang and Sennrich 2019 (arXiv:1910.07467); SwiGLU, Shazeer 2020
(arXiv:2002.05202): down(silu(gate x) * up x).

Shapes: D hidden, F width of the block.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reference.kernels.linear import linear
from reference.kernels.norm import rms_norm
from reference.kernels.swiglu import swiglu
from reference.memory.stash import mark, op


class Linear(nn.Module):
    """x W^T. Unlike torch's own it starts without values: `initialize` gives them by name."""

    def __init__(self, inputs: int, outputs: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        return linear(x, self.weight)


class RmsNorm(nn.Module):
    """x / rms(x) * gain over the last dimension; statistics in fp32."""

    def __init__(self, width: int, eps: float, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.empty(width, device=device, dtype=dtype))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """The same shape as x."""
        return op("norms", rms_norm, x, self.gain, self.eps)


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
