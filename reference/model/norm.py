"""RMSNorm (Zhang and Sennrich 2019, arXiv:1910.07467)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reference.kernels.norm import rms_norm
from reference.memory.stash import op


class RmsNorm(nn.Module):
    """x / rms(x) * gain over the last dimension; statistics in fp32."""

    def __init__(self, width: int, eps: float, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.empty(width, device=device, dtype=dtype))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """The same shape as x."""
        return op("norms", rms_norm, x, self.gain, self.eps)
