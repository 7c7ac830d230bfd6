"""Where optimizer states wait between steps: the one place through which a step reads and writes
them.

A step asks for a block's states (`load`), changes the tensors in place, and gives them back
(`store`), block by block in the order in which they were added. Here they stay on the parameters'
device and both calls are free; a memory policy that keeps them in host memory is a subclass that
copies, and may prefetch, since the order never changes.

Bytes per weight, beside the parameter: Muon 4 (momentum), AdamW 8 (two moments), and 4 more for the
fp32 master of a bf16 parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

import torch
from torch import Tensor

from reference.optim.block import Block

MASTER, MOMENTUM, FIRST, SECOND, STEP = "master", "momentum", "exp_avg", "exp_avg_sq", "step"
"""Names of states; the last three as torch.optim.AdamW has them."""


class States:
    """States of all blocks: each one flat tensor, beside a count of steps (0-dimensional, fp32, on
    the CPU) for AdamW."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Tensor]] = {}

    def add(self, block: Block, tensors: dict[str, Tensor]) -> None:
        """Take over the first states of a block."""
        self._kept[block.name] = tensors

    def load(self, block: Block) -> dict[str, Tensor]:
        """The block's states where its update runs, to be changed in place."""
        return self._kept[block.name]

    def store(self, block: Block, tensors: dict[str, Tensor]) -> None:
        """Take back what `load` gave."""
        self._kept[block.name] = tensors

    def kept(self, block: Block) -> dict[str, Tensor]:
        """The block's states where they wait; checkpoints read and fill these tensors."""
        return self._kept[block.name]


def first_states(block: Block) -> dict[str, Tensor]:
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

    def __init__(self, states: States, block: Block, index: int) -> None:
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
