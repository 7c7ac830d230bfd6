"""How many matrices and weights Muon and AdamW move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor

from reference.optim.blocks import matrices


class Counts(NamedTuple):
    """What each of the two algorithms moves."""

    muon_matrices: int
    muon_weights: int
    adamw_weights: int


def shapes(named_parameters: Iterable[tuple[str, Tensor]]) -> Counter[tuple[int, int]]:
    """How many matrices Muon takes of each (rows, columns)."""
    found: Counter[tuple[int, int]] = Counter()
    for name, tensor in named_parameters:
        stack = matrices(name, tensor)
        if stack is not None:
            found[stack.shape[1], stack.shape[2]] += stack.shape[0]
    return found


def count(named_parameters: Iterable[tuple[str, Tensor]]) -> Counts:
    """Matrices and weights that Muon and AdamW move."""
    named = list(named_parameters)
    of_matrices = shapes(named)
    muon = sum(rows * columns * number for (rows, columns), number in of_matrices.items())
    every = sum(tensor.numel() for _, tensor in named)
    return Counts(of_matrices.total(), muon, every - muon)
