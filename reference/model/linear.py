"""A linear layer without bias, its weight [out, in]."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reference.kernels.linear import linear


class Linear(nn.Module):
    """x W^T. Unlike torch's own it starts without values: `initialize` gives them by name."""

    def __init__(self, inputs: int, outputs: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        return linear(x, self.weight)
