"""Optimizer states that rest in host memory between steps, and how they come to their update.

`optimizer_update: device` streams them through the device, block by block in the optimizer's order:
one block comes up while one is updated and one goes down (ZeRO-Infinity, arXiv:2104.07857). With
`host` they stay: gradients come down, the host's cores update, new weights go up (ZeRO-Offload,
arXiv:2101.06840), and Muon's direction is orthogonalised on the device. A weight that is its own
master (fp32) is on the device, and so its update runs there: `host` then streams, too.

Where the device is no GPU, host memory is the same memory; copies and counts are made all the same.
The count of steps, one number, is always on the host.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from reference.memory.host import beside, host_like
from reference.optim.blocks import Block, States
from twin.spec.memory import MemorySpec

_ON_DEVICE: Final = MemorySpec()


class OptimizerStates(States):
    """States under a memory policy."""

    def __init__(self, policy: MemorySpec = _ON_DEVICE) -> None:
        super().__init__()
        self._on_host = policy.states_on_host
        self._streams = policy.optimizer_update == "device"
        self._after: dict[str, Block] = {}
        """The block that follows one."""
        self._added: Block | None = None
        self._stored: Block | None = None
        self._coming: _Visit | None = None
        self._going: dict[str, torch.Event] = {}

    def on_host(self, block: Block) -> bool:
        """Whether the block's states rest in host memory."""
        return ("expert" if block.expert else "dense") in self._on_host

    def add(self, block: Block, tensors: dict[str, Tensor]) -> None:
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

    def load(self, block: Block) -> dict[str, Tensor]:
        """The block's states where its update runs."""
        if not self._visits(block):
            return super().load(block)
        coming, self._coming = self._coming, None
        visit = coming if coming and coming.block is block else self._bring(block)
        follower = self._after.get(block.name)
        in_order = self._stored is not None and self._after.get(self._stored.name) is block
        if in_order and follower is not None and self._visits(follower):
            self._coming = self._bring(follower)
        return visit.arrive()

    def store(self, block: Block, tensors: dict[str, Tensor]) -> None:
        """Take back what `load` gave."""
        if not self._visits(block):
            super().store(block, tensors)
            return
        with beside(block.device, "out") as stream:
            for name, rests in super().kept(block).items():
                if rests.dim():
                    rests.copy_(tensors[name], non_blocking=True)
                    if stream is not None:
                        tensors[name].record_stream(stream)
        if stream is not None:
            self._going[block.name] = stream.record_event()
        self._stored = block

    def kept(self, block: Block) -> dict[str, Tensor]:
        """The block's states where they rest, once they are there. What is written into them holds
        for the next `load`."""
        if self._coming is not None and self._coming.block is block:
            self._coming = None
        going = self._going.pop(block.name, None)
        if going is not None:
            going.synchronize()
        return super().kept(block)

    def _visits(self, block: Block) -> bool:
        """Whether an update needs a copy on the device."""
        return self.on_host(block) and (self._streams or not block.has_master)

    def _bring(self, block: Block) -> _Visit:
        return _Visit(block, super().kept(block), self._going.pop(block.name, None))


class _Visit:
    """A block's states on their way to the device."""

    def __init__(self, block: Block, rests: dict[str, Tensor], going: torch.Event | None) -> None:
        self.block = block
        self._here = {
            name: torch.empty_like(one, device=block.device) if one.dim() else one
            for name, one in rests.items()
        }
        self._arrived: torch.Event | None = None
        with beside(block.device, "back") as stream:
            if stream is not None and going is not None:
                stream.wait_event(going)
            for name, one in rests.items():
                if one.dim():
                    self._here[name].copy_(one, non_blocking=True)
                    if stream is not None:
                        self._here[name].record_stream(stream)
            if stream is not None:
                self._arrived = stream.record_event()

    def arrive(self) -> dict[str, Tensor]:
        """The states, from here on usable on the device."""
        if self._arrived is not None:
            torch.cuda.current_stream(self.block.device).wait_event(self._arrived)
        return self._here
