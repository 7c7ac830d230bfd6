"""Which parameters Muon moves, as which matrices; the blocks that one update takes together; and
their optimizer states.

Moonlight's rule (arXiv:2502.16982, section 2.2; its `toy_train.py`): matrices go to Muon;
embedding, head and everything with one dimension to AdamW. The router is a matrix. Each expert's
matrices are taken apart, and so are gate and up, which the model keeps as one tensor:
orthogonalising two matrices as one would couple them. Projections to all heads stay whole, as in K2
(per-head Muon came later).

Small matrices of one shape share a block, so that their products are one call and their states one
tensor; a parameter above the limit has a block of its own. Routed experts never share a block with
other weights, since a memory policy may send their states elsewhere.

A step asks for a block's states (`States.load`), changes the tensors in place, and gives them back
(`States.store`), block by block in the order in which they were added. `States` keeps them on the
parameters' device; a memory policy that keeps them in host memory is a subclass that copies, and
may prefetch, since the order never changes. Bytes per weight, beside the parameter: Muon 4
(momentum), AdamW 8 (two moments), and 4 more for the fp32 master of a bf16 parameter.

Shapes: M matrices, R rows, C columns, E experts, F expert width, D hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

_TABLES = frozenset({"embedding", "head"})
"""Matrices by shape, which are tables of words."""
_GATED = "up"
"""Holds gate over up along the rows."""


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


Algorithm = Literal["muon", "adamw"]
SHARED_WEIGHTS: Final = {"cpu": 1 << 18, "cuda": 1 << 26}
"""Most weights of a block of several parameters, and of one Newton-Schulz call. On a CPU a call's
matrices stay in a core's cache: a step of `nano` takes 15.9 ms in bf16 and 42 in fp32 with AVX2,
and at twice as many 18.5 and 48; 128 matrices of 64 x 128 take 3 % longer than at the best of
1 << 16 to 1 << 19 (Zen 5, one thread). The larger one, for few launches, is not measured."""


@dataclass(frozen=True, slots=True, eq=False)
class ParameterBlock:
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


def blocks(
    named_parameters: Iterable[tuple[str, Tensor]], *, muon: bool
) -> tuple[ParameterBlock, ...]:
    """The blocks of a model, in the order of its parameters; without `muon` AdamW moves all."""
    grouped: dict[tuple[object, ...], list[tuple[str, Tensor]]] = {}
    for name, param in named_parameters:
        stack = matrices(name, param.detach()) if muon else None
        shape = None if stack is None else (stack.shape[1], stack.shape[2])
        key = (shape, param.dtype, param.device, is_expert(name))
        grouped.setdefault(key, []).append((name, param))
    found: list[ParameterBlock] = []
    for (shape, *_), members in grouped.items():
        assert shape is None or isinstance(shape, tuple)
        found += [_block(part, shape) for part in _packed(members)]
    return tuple(found)


def _block(members: list[tuple[str, Tensor]], shape: tuple[int, int] | None) -> ParameterBlock:
    names = tuple(name for name, _ in members)
    params = tuple(param for _, param in members)
    weights = sum(param.numel() for param in params)
    expert = is_expert(names[0])
    if shape is None:
        return ParameterBlock("adamw", names, params, None, expert, weights, 0)
    at_once = max(1, most_weights(params[0].device) // (shape[0] * shape[1]))
    return ParameterBlock("muon", names, params, shape, expert, weights, at_once)


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


MASTER, MOMENTUM, FIRST, SECOND, STEP = "master", "momentum", "exp_avg", "exp_avg_sq", "step"
"""Names of states; the last three as torch.optim.AdamW has them."""


class States:
    """States of all blocks: each one flat tensor, beside a count of steps (0-dimensional, fp32, on
    the CPU) for AdamW."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Tensor]] = {}

    def add(self, block: ParameterBlock, tensors: dict[str, Tensor]) -> None:
        """Take over the first states of a block."""
        self._kept[block.name] = tensors

    def load(self, block: ParameterBlock) -> dict[str, Tensor]:
        """The block's states where its update runs, to be changed in place."""
        return self._kept[block.name]

    def store(self, block: ParameterBlock, tensors: dict[str, Tensor]) -> None:
        """Take back what `load` gave."""
        self._kept[block.name] = tensors

    def kept(self, block: ParameterBlock) -> dict[str, Tensor]:
        """The block's states where they wait; checkpoints read and fill these tensors."""
        return self._kept[block.name]


def first_states(block: ParameterBlock) -> dict[str, Tensor]:
    """Zero moments, and masters equal to the parameters."""
    names = (MOMENTUM,) if block.algorithm == "muon" else (FIRST, SECOND)
    made = {"dtype": block.state_dtype, "device": block.device}
    tensors = {name: torch.zeros(block.weights, **made) for name in names}
    if block.has_master:
        tensors[MASTER] = torch.empty(block.weights, **made)
        for part, param in zip(block.parts(tensors[MASTER]), block.params, strict=True):
            part.copy_(param.detach())
    if block.algorithm == "adamw":
        tensors[STEP] = torch.zeros((), dtype=torch.float32)
    return tensors


class ParameterState(MutableMapping[str, Tensor]):
    """One parameter's part of its block's states, by name. Reading gives views of what is kept;
    assigning copies into it, so that a checkpoint can be put back without knowing of blocks."""

    def __init__(self, states: States, block: ParameterBlock, index: int) -> None:
        self._states = states
        self._block = block
        self._index = index

    def __getitem__(self, key: str) -> Tensor:
        flat = self._states.kept(self._block)[key]
        return flat if flat.dim() == 0 else self._block.parts(flat)[self._index]

    def __setitem__(self, key: str, value: Tensor) -> None:
        self[key].copy_(value)

    def __delitem__(self, key: str) -> None:
        raise TypeError(f"an optimizer state cannot lose `{key}`")

    def __iter__(self) -> Iterator[str]:
        return iter(self._states.kept(self._block))

    def __len__(self) -> int:
        return len(self._states.kept(self._block))
