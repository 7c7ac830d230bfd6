"""Optimizer states that rest in host memory between steps, and how they come to their update.

`optimizer_update: device` streams them through the device, block by block in the optimizer's order:
one block comes up while one is updated and one goes down (ZeRO-Infinity, arXiv:2104.07857). With
`host` they stay: gradients come down, the host's cores update, new weights go up (ZeRO-Offload,
arXiv:2101.06840), and Muon's direction is orthogonalised on the device. A weight that is its own
master (fp32) is on the device, and so its update runs there: `host` then streams, too.

Where the device is no GPU, host memory is the same memory; copies and counts are made all the same.
The count of steps, one number, is always on the host.

`standing` counts the bytes that stand between steps, by the categories of the simulator's ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from torch import Tensor, nn

from reference import streams
from reference.memory.host import Parcel, beside, fetch, host_like
from reference.memory.saved_tensor import key
from reference.optim.blocks import ParameterBlock, States
from reference.streams import Event
from twin.spec.memory import MemorySpec

_ON_DEVICE: Final = MemorySpec()


class OptimizerStates(States):
    """States under a memory policy."""

    def __init__(self, policy: MemorySpec = _ON_DEVICE) -> None:
        super().__init__()
        self._on_host = policy.states_on_host
        self._streams = policy.optimizer_update == "device"
        self._after: dict[str, ParameterBlock] = {}
        """The block that follows one."""
        self._added: ParameterBlock | None = None
        self._stored: ParameterBlock | None = None
        self._coming: tuple[ParameterBlock, dict[str, Tensor | Parcel]] | None = None
        """The block whose states are on their way to the device."""
        self._going: dict[str, Event] = {}

    def on_host(self, block: ParameterBlock) -> bool:
        """Whether the block's states rest in host memory."""
        return ("expert" if block.expert else "dense") in self._on_host

    def add(self, block: ParameterBlock, tensors: dict[str, Tensor]) -> None:
        """Take over the first states of a block, to where they rest."""
        if self.on_host(block):
            tensors = {
                name: host_like(one).copy_(one) if one.dim() else one
                for name, one in tensors.items()
            }
            if self._added is not None:
                self._after[self._added.name] = block
            self._added = block
        super().add(block, tensors)

    def load(self, block: ParameterBlock) -> dict[str, Tensor]:
        """The block's states where its update runs."""
        if not self._visits(block):
            return super().load(block)
        coming, self._coming = self._coming, None
        visit = coming[1] if coming and coming[0] is block else self._bring(block)
        follower = self._after.get(block.name)
        in_order = self._stored is not None and self._after.get(self._stored.name) is block
        if in_order and follower is not None and self._visits(follower):
            self._coming = follower, self._bring(follower)
        return {
            name: one.tensor() if isinstance(one, Parcel) else one for name, one in visit.items()
        }

    def store(self, block: ParameterBlock, tensors: dict[str, Tensor]) -> None:
        """Take back what `load` gave."""
        if not self._visits(block):
            super().store(block, tensors)
            return
        kind = streams.of(block.device)
        with beside(block.device, "out") as stream:
            for name, rests in super().kept(block).items():
                if rests.dim():
                    kind.copy(rests, tensors[name])
                    kind.keep(tensors[name], stream)
            self._going[block.name] = stream.record_event()
        self._stored = block

    def kept(self, block: ParameterBlock) -> dict[str, Tensor]:
        """The block's states where they rest, once they are there. What is written into them holds
        for the next `load`."""
        going = [self._going.pop(block.name, None)]
        if self._coming is not None and self._coming[0] is block:
            going = [one.moved for one in self._coming[1].values() if isinstance(one, Parcel)]
            self._coming = None
        for event in going:
            if event is not None:
                event.synchronize()
        return super().kept(block)

    def _visits(self, block: ParameterBlock) -> bool:
        """Whether an update needs a copy on the device."""
        return self.on_host(block) and (self._streams or not block.has_master)

    def _bring(self, block: ParameterBlock) -> dict[str, Tensor | Parcel]:
        """The block's states, on their way to the device."""
        rests = super().kept(block)
        gone = self._going.pop(block.name, None)
        parcels = {
            name: Parcel(one, block.device, gone) for name, one in rests.items() if one.dim()
        }
        fetch(parcels.values())
        return {**rests, **parcels}


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes on the device and in host memory."""

    device: int = 0
    host: int = 0


class Holds(Protocol):
    """An optimizer."""

    states: States

    @property
    def blocks(self) -> Sequence[ParameterBlock]:
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
