"""What memory is used for, in bytes: what forwards keep for their backward, and what stands between
steps. Categories have the names of the simulator's ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from reference.memory.optimizer_states import OptimizerStates
from reference.memory.saved_tensor import KeptBytes, key
from reference.optim.blocks import Block, States

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes on the device and in host memory."""

    device: int = 0
    host: int = 0


def by_layer(ledger: Iterable[KeptBytes]) -> dict[int | None, Bytes]:
    """What each layer keeps of one forward pass; None: embedding, head and loss."""
    return _summed((one.layer, one) for one in ledger)


def by_name(ledger: Iterable[KeptBytes], layer: int | None) -> dict[str, Bytes]:
    """What one layer keeps, by the op or mark that made it. Names of what is not recomputed are
    known only to a `Stash` that measures."""
    return _summed((one.name, one) for one in ledger if one.layer == layer)


class Holds(Protocol):
    """An optimizer."""

    states: States

    @property
    def blocks(self) -> Sequence[Block]:
        """Whatever has states."""
        ...


def standing(model: nn.Module, optimizer: Holds) -> dict[str, Bytes]:
    """What stands between steps: parameters and buffers, gradients (where there are any), and the
    optimizer's states of dense weights and of experts, masters among them."""
    weights = [*model.parameters(), *model.buffers()]
    gradients = [one.grad for one in model.parameters() if one.grad is not None]
    states = {"optimizer_dense": Bytes(), "optimizer_expert": Bytes()}
    for block in optimizer.blocks:
        name = "optimizer_expert" if block.expert else "optimizer_dense"
        # Without the counts of steps, single numbers on the host.
        size = unique_bytes(one for one in optimizer.states.kept(block).values() if one.dim())
        held, found = optimizer.states, states[name]
        away = isinstance(held, OptimizerStates) and held.on_host(block)
        states[name] = Bytes(found.device + size * (not away), found.host + size * away)
    return {
        "parameters": Bytes(unique_bytes(weights)),
        "gradients": Bytes(unique_bytes(gradients)),
        **states,
    }


def unique_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of all storages under the tensors, each once."""
    return sum({key(one): one.untyped_storage().nbytes() for one in tensors}.values())


def peak(device: torch.device) -> int | None:
    """The most bytes that tensors had on a GPU since the last `reset_peak`; None elsewhere, where
    nobody counts them."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def reset_peak(device: torch.device) -> None:
    """Begin to count anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _summed(kept: Iterable[tuple[K, KeptBytes]]) -> dict[K, Bytes]:
    device: Counter[K] = Counter()
    host: Counter[K] = Counter()
    for group, one in kept:
        device[group] += one.device
        host[group] += one.host
    return {group: Bytes(device[group], host[group]) for group in device}
