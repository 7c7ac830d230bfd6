"""Parameters with gradients for the optimizer's tests, the same from the same seed."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import Parameter


def parameters(
    shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype = torch.float32
) -> dict[str, Parameter]:
    generator = torch.Generator().manual_seed(1)
    return {
        name: Parameter(torch.randn(shape, generator=generator).to(dtype))
        for name, shape in shapes.items()
    }


def give_gradients(named: Mapping[str, Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(1000 + step)
    for param in named.values():
        drawn = torch.randn(param.shape, generator=generator)
        param.grad = None
        param.grad = drawn.to(param.grad_dtype or param.dtype)
