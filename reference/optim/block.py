"""Parameters that one update takes together, and how they are chosen.

Small matrices of one shape share a block, so that their products are one call and their states one
tensor; a parameter above the limit has a block of its own. Routed experts never share a block with
other weights, since a memory policy may send their states elsewhere.

Shapes: M matrices, R rows, C columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from reference.optim.groups import is_expert, matrices

Algorithm = Literal["muon", "adamw"]
SHARED_WEIGHTS: Final = {"cpu": 1 << 19, "cuda": 1 << 26}
"""Most weights of a block of several parameters, and of one Newton-Schulz call. On a CPU the bf16
matrices (1 MB) stay in a core's cache: of 1 << 13 to 1 << 20 it was the fastest for 128 matrices of
64 x 128 (Zen 5, one thread). The larger one, for few launches, is not measured."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Parameters of one algorithm, type and device; for Muon all of their matrices have one shape.

    A state of the block is one flat tensor, the parameters' parts in order.
    """

    algorithm: Algorithm
    names: tuple[str, ...]
    params: tuple[Tensor, ...]
    shape: tuple[int, int] | None
    """Rows and columns of every matrix; None for AdamW."""
    expert: bool
    weights: int
    """Numbers in all parameters."""
    at_once: int
    """Matrices that are orthogonalised in one call."""

    @property
    def name(self) -> str:
        """That of its first parameter; no other block has it."""
        return self.names[0]

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.params[0].device

    @property
    def dtype(self) -> torch.dtype:
        """The parameters' type."""
        return self.params[0].dtype

    @property
    def state_dtype(self) -> torch.dtype:
        """fp32, or float64 for float64 parameters."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    @property
    def has_master(self) -> bool:
        """Whether the parameters are rounded copies of wider weights kept in the state."""
        return self.dtype != self.state_dtype

    def parts(self, flat: Tensor) -> list[Tensor]:
        """Views of a flat tensor of `weights` numbers in the parameters' shapes."""
        pieces = flat.view(-1).split([param.numel() for param in self.params])
        return [piece.view(param.shape) for piece, param in zip(pieces, self.params, strict=True)]

    def round_masters(self, masters: Tensor) -> None:
        """Make the parameters what their masters are, in fewer bits."""
        parts = self.parts(masters)
        torch._foreach_copy_(self.params, parts)  # pyright: ignore[reportPrivateImportUsage]

    def gradient(self) -> Tensor:
        """Of all parameters, each of which must have one; flat if they are several."""
        if len(self.params) == 1 and self.params[0].grad is not None:
            return self.params[0].grad.contiguous()
        return torch.cat([gradient.reshape(-1) for gradient in self.gradients()])

    def gradients(self) -> list[Tensor]:
        """Of all parameters, each of which must have one."""
        return [param.grad for param in self.params if param.grad is not None]


def blocks(named_parameters: Iterable[tuple[str, Tensor]], *, muon: bool) -> tuple[Block, ...]:
    """The blocks of a model, in the order of its parameters; without `muon` AdamW moves all."""
    grouped: dict[tuple[object, ...], list[tuple[str, Tensor]]] = {}
    for name, param in named_parameters:
        stack = matrices(name, param.detach()) if muon else None
        shape = None if stack is None else (stack.shape[1], stack.shape[2])
        key = (shape, param.dtype, param.device, is_expert(name))
        grouped.setdefault(key, []).append((name, param))
    found: list[Block] = []
    for (shape, *_), members in grouped.items():
        assert shape is None or isinstance(shape, tuple)
        found += [_block(part, shape) for part in _packed(members)]
    return tuple(found)


def _block(members: list[tuple[str, Tensor]], shape: tuple[int, int] | None) -> Block:
    names = tuple(name for name, _ in members)
    params = tuple(param for _, param in members)
    weights = sum(param.numel() for param in params)
    expert = is_expert(names[0])
    if shape is None:
        return Block("adamw", names, params, None, expert, weights, 0)
    at_once = max(1, most_weights(params[0].device) // (shape[0] * shape[1]))
    return Block("muon", names, params, shape, expert, weights, at_once)


def _packed(members: list[tuple[str, Tensor]]) -> list[list[tuple[str, Tensor]]]:
    """Members in order, cut where the limit would be passed."""
    packs: list[list[tuple[str, Tensor]]] = []
    room = 0
    for name, param in members:
        if param.numel() > room:
            packs.append([])
            room = most_weights(param.device)
        packs[-1].append((name, param))
        room -= param.numel()
    return packs


def most_weights(device: torch.device) -> int:
    """`SHARED_WEIGHTS` of a device."""
    return SHARED_WEIGHTS.get(device.type, SHARED_WEIGHTS["cuda"])
