"""Which path an operation takes: Triton on CUDA where it is installed, else PyTorch."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from torch import Tensor


def by_triton(x: Tensor) -> bool:
    """Whether Triton's kernels take `x`; they compute in fp32, so float64 stays with PyTorch."""
    return x.is_cuda and x.element_size() < 8 and _installed()


@cache
def _installed() -> bool:
    return find_spec("triton") is not None
