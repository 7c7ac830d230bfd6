"""A bucket as a broadcast of all ranks, as checkpoint-engine sends it: NCCL's rings on GPUs, gloo's
tree on a CPU.

Other senders take part and throw away what comes. A rank that is killed breaks the group for all:
they say so, and the controller does the update anew with those that are left.

NCCL was written and has not run.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from reference.weight_sync.wires.base import Meeting


class Collective:
    """A rank's end (`reference.weight_sync.wires.base.Wire`)."""

    def __init__(self, meeting: Meeting, device: torch.device) -> None:
        self.lost: set[int] = set()
        self._meeting, self._device = meeting, device
        self._gloo = meeting.gloo("all", meeting.rank, meeting.ranks)
        self._nccl: Any = None
        self._thrown: Tensor | None = None
        several = meeting.senders > 1 and meeting.rank < meeting.senders
        self._senders = meeting.gloo("senders", meeting.rank, meeting.senders) if several else None

    def send(self, data: Tensor) -> None:
        """To all ranks."""
        self._broadcast(data, self._meeting.rank)

    def receive(self, owner: int, into: Tensor) -> None:
        """From its owner."""
        self._broadcast(into, owner)

    def watch(self, owner: int, size: int) -> None:
        """Take part."""
        if self._thrown is None or self._thrown.numel() < size:
            self._thrown = torch.empty(size, dtype=torch.uint8, device=self._device)
        self._broadcast(self._thrown[:size], owner)

    def meet(self) -> None:
        """Until all senders are here."""
        if self._senders is not None:
            self._senders.barrier().wait()

    def _broadcast(self, data: Tensor, owner: int) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = owner
        options.rootTensor = 0
        group = self._on_gpus() if data.is_cuda else self._gloo
        group.broadcast([data], options).wait()
        if data.is_cuda:
            torch.cuda.current_stream().synchronize()

    def _on_gpus(self) -> Any:
        """Made when it is first needed: where there is no GPU torch has none to make."""
        if self._nccl is None:
            meeting, options = self._meeting, dist.ProcessGroupNCCL.Options()
            options._timeout = meeting.timeout  # noqa: SLF001  as torch itself sets it
            store = meeting.store("nccl")
            self._nccl = dist.ProcessGroupNCCL(store, meeting.rank, meeting.ranks, options)
        return self._nccl
