"""Which path a kernel takes, by its tensors' device; and the FLOP of kernels on the meta device.

On the meta device a kernel only makes shapes. It then says what it would compute to whoever counts
(`reference.shapes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

from torch import Tensor


def by_triton(x: Tensor) -> bool:
    """Whether Triton's kernels take `x`; they compute in fp32, so float64 stays with PyTorch."""
    return x.is_cuda and x.element_size() < 8 and _installed()


@cache
def _installed() -> bool:
    return find_spec("triton") is not None


_counters: list[Callable[[float], None]] = []


@contextmanager
def counted(counter: Callable[[float], None]) -> Iterator[None]:
    """Within, the counter is called with the FLOP of each such kernel."""
    _counters.append(counter)
    try:
        yield
    finally:
        _counters.remove(counter)


def computes(flop: float) -> None:
    """A kernel would compute this much, a multiply-add being two."""
    for counter in _counters:
        counter(flop)
