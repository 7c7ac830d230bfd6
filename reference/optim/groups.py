"""Which parameters Muon moves, as which matrices, and which are left to AdamW: from names and
shapes alone.

Moonlight's rule (arXiv:2502.16982, section 2.2; its `toy_train.py`): matrices go to Muon;
embedding, head and everything with one dimension to AdamW. The router is a matrix. Each expert's
matrices are taken apart, and so are gate and up, which the model keeps as one tensor:
orthogonalising two matrices as one would couple them. Projections to all heads stay whole, as in K2
(per-head Muon came later).

Shapes: M matrices, E experts, F expert width, D hidden.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

_TABLES = frozenset({"embedding", "head"})
"""Matrices by shape, which are tables of words."""
_GATED = "up"
"""Holds gate over up along the rows."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What each of the two algorithms moves."""

    muon_matrices: int
    muon_weights: int
    adamw_weights: int


def matrices(name: str, tensor: Tensor) -> Tensor | None:
    """The parameter seen as [M, rows, cols], the matrices that Muon takes each by itself; None
    where AdamW moves it. `tensor` is the parameter or anything of its shape, contiguous."""
    owner = name.removesuffix(".weight").rpartition(".")[2]
    if tensor.dim() < 2 or owner in _TABLES:
        return None
    *several, rows, cols = tensor.shape
    if owner == _GATED:
        several, rows = [*several, 2], rows // 2
    count = 1
    for size in several:
        count *= size
    return tensor.view(count, rows, cols)


def is_expert(name: str) -> bool:
    """Whether the parameter holds routed experts (not the shared one)."""
    return "experts" in name.split(".")


def shapes(named_parameters: Iterable[tuple[str, Tensor]]) -> Counter[tuple[int, int]]:
    """How many matrices Muon takes of each (rows, cols)."""
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
    muon = sum(rows * cols * number for (rows, cols), number in of_matrices.items())
    every = sum(tensor.numel() for _, tensor in named)
    return Counts(of_matrices.total(), muon, every - muon)
