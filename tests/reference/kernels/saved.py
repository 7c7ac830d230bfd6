"""What autograd keeps for a backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def saved_by(run: Callable[[], Any]) -> tuple[Any, list[Tensor]]:
    """The result of `run`, and every tensor that autograd saved in it."""
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        return run(), kept


def same(kept: list[Tensor], *named: Tensor) -> bool:
    """Whether `kept` are views of the memory of `named`, one each and in this order."""
    places = [(t.data_ptr(), t.shape, t.dtype) for t in kept]
    return places == [(t.data_ptr(), t.shape, t.dtype) for t in named]
