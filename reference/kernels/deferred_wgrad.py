"""Weight gradients that may wait: the backward pass in two halves, inputs first (Qi et al. 2023,
"Zero bubble pipeline parallelism", arXiv:2401.10241, section 2).

A kernel with a weight asks `weight_gradient` in its backward. Usually that gives the gradient at
once, and autograd adds it up. Under `DeferredGradients` that hold back, it gives None, and the
product is made when `run` is called, from the input and the output's gradient, which wait until
then. Each use of a weight waits by itself, so weights used twice, and kernels with several outputs,
need no care.

torch's own split walks the autograd graph and loses gradients where nodes have several outputs or
weights are shared (pytorch issues 180952 and 170277), so it is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import local

import torch
from torch import Tensor


class DeferredGradients:
    """The weight gradients of one forward pass, if they are put off."""

    def __init__(self) -> None:
        self.holds = False
        """Whether a backward that runs now puts them off."""
        self._waiting: list[Callable[[], None]] = []

    @contextmanager
    def held(self) -> Iterator[None]:
        """Put off what the backward pass inside asks for."""
        self.holds = True
        try:
            yield
        finally:
            self.holds = False

    def put(self, add: Callable[[], None]) -> None:
        """Add up a weight's gradient later."""
        self._waiting.append(add)

    @torch.no_grad()
    def run(self) -> None:
        """Make all that waits, in the order of the backward pass, and add it up."""
        waiting, self._waiting = self._waiting, []
        waiting.reverse()
        while waiting:
            waiting.pop()()


class _Now(local):
    deferred: DeferredGradients | None = None


_now = _Now()


@contextmanager
def deferring_to(deferred: DeferredGradients | None) -> Iterator[None]:
    """The forward pass inside belongs to `deferred`."""
    before, _now.deferred = _now.deferred, deferred
    try:
        yield
    finally:
        _now.deferred = before


def current() -> DeferredGradients | None:
    """Whom a forward pass that runs now belongs to; a kernel remembers it for its backward."""
    return _now.deferred


def weight_gradient(
    deferred: DeferredGradients | None, weight: Tensor, make: Callable[[], Tensor]
) -> Tensor | None:
    """The gradient; or None where it waits, or was added to one in a wider type, of which autograd
    would make it a copy first."""
    if deferred is not None and deferred.holds:
        deferred.put(lambda: _accumulate(weight, make()))
        return None
    if weight.grad is not None and weight.grad.dtype != weight.dtype:
        _accumulate(weight, make())
        return None
    return make()


def _accumulate(weight: Tensor, gradient: Tensor) -> None:
    """Add to `.grad`, in the type that autograd would have there."""
    if weight.grad is None:
        kind = weight.grad_dtype if weight.grad_dtype is not None else weight.dtype
        weight.grad = gradient.to(kind)
    else:
        weight.grad += gradient
