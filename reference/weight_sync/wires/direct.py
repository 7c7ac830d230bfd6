"""A bucket as messages from its owner to each receiver, all under way at once.

A receiver depends on owners alone: when another one is killed, it notices nothing, and the owner
leaves it out from then on. The price is that an owner sends as many copies as there are receivers,
where a tree or a ring sends fewer from one place; on one machine the bytes are the same. What lies
on a GPU passes through host memory: gloo sends from there alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from reference.weight_sync.wires.base import Meeting

_TAG = 1


class Direct:
    """A rank's end (`reference.weight_sync.wires.base.Wire`), over gloo."""

    def __init__(self, meeting: Meeting, device: torch.device) -> None:
        del device  # gloo sends from host memory, wherever data is
        self.lost: set[int] = set()
        self._meeting = meeting
        self._group = meeting.gloo("all", meeting.rank, meeting.ranks)
        several = meeting.senders > 1 and meeting.rank < meeting.senders
        self._senders = meeting.gloo("senders", meeting.rank, meeting.senders) if several else None

    def send(self, data: Tensor) -> None:
        """To all receivers that are left."""
        works, data = [], data.cpu()
        for rank in self._meeting.receivers:
            if rank not in self.lost:
                try:
                    works.append((rank, self._group.send([data], rank, _TAG)))
                except RuntimeError:  # its connection was closed before
                    self.lost.add(rank)
        for rank, work in works:
            try:
                work.wait()
            except RuntimeError:  # closed, or silent for longer than the patience
                self.lost.add(rank)

    def receive(self, owner: int, into: Tensor) -> None:
        """From its owner."""
        if not into.is_cuda:
            self._group.recv([into], owner, _TAG).wait()
            return
        came = torch.empty(into.shape, dtype=into.dtype, pin_memory=True)
        self._group.recv([came], owner, _TAG).wait()
        into.copy_(came)

    def watch(self, owner: int, size: int) -> None:
        """Nothing comes here."""

    def meet(self) -> None:
        """Until all senders are here."""
        if self._senders is not None:
            self._senders.barrier().wait()
