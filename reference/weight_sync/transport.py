"""How a bucket gets from its owner to the receivers, and where the ranks meet.

`direct`: messages from an owner to each receiver, all under way at once, over gloo. A receiver
depends on owners alone: when another one is killed, it notices nothing, and the owner leaves it out
from then on. The price is that an owner sends as many copies as there are receivers, where a tree
or a ring sends fewer from one place; on one machine the bytes are the same. Data on a GPU passes
through host memory: gloo sends from there alone.

`collective`: a broadcast of all ranks, as checkpoint-engine sends it: NCCL's rings on GPUs, gloo's
tree on a CPU. Other senders take part and throw away the data. A rank that is killed breaks the
group for all: they report it, and the controller repeats the update with those that are left. NCCL
was written and has not run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

_TAG = 1
_DIST: Any = dist
"""Its stub does not export stores."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """The ranks of one group: senders first. A receiver that is gone is not in the next one, whose
    `epoch` is another."""

    host: str
    port: int
    epoch: int
    rank: int
    senders: int
    ranks: int
    patience: float
    """Seconds without a word after which a rank counts as gone."""

    def store(self, name: str) -> Any:
        """Where the ranks of this epoch find each other."""
        return _DIST.PrefixStore(f"{name}/{self.epoch}", _client(self.host, self.port))

    @property
    def receivers(self) -> range:
        """Their ranks."""
        return range(self.senders, self.ranks)

    @property
    def timeout(self) -> timedelta:
        """The patience, for torch."""
        return timedelta(seconds=self.patience)

    def gloo(self, name: str, rank: int, ranks: int) -> Any:
        """A gloo group of its own, whatever groups the process has beside it; torch's stub lacks
        its methods."""
        return _DIST.ProcessGroupGloo(self.store(name), rank, ranks, self.timeout)


class Wire(ABC):
    """One rank's end. A call raises RuntimeError where a rank that it cannot do without is gone."""

    lost: set[int]
    """Ranks of receivers that are gone; a sender goes on without them if it can."""

    def __init__(self, meeting: Meeting, device: torch.device) -> None:
        self.lost = set()
        self._meeting, self._device = meeting, device
        self._gloo = meeting.gloo("all", meeting.rank, meeting.ranks)
        several = meeting.senders > 1 and meeting.rank < meeting.senders
        self._senders = meeting.gloo("senders", meeting.rank, meeting.senders) if several else None

    @abstractmethod
    def send(self, data: Tensor) -> None:
        """A bucket of its own, to all receivers."""

    @abstractmethod
    def receive(self, owner: int, into: Tensor) -> None:
        """A bucket of an owner."""

    @abstractmethod
    def watch(self, owner: int, size: int) -> None:
        """Another owner sends a bucket of so many bytes."""

    def meet(self) -> None:
        """Until all senders are here."""
        if self._senders is not None:
            self._senders.barrier().wait()


class DirectWire(Wire):
    """Messages over gloo."""

    def send(self, data: Tensor) -> None:
        """To all receivers that are left."""
        works, data = [], data.cpu()
        for rank in self._meeting.receivers:
            if rank not in self.lost:
                try:
                    works.append((rank, self._gloo.send([data], rank, _TAG)))
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
            self._gloo.recv([into], owner, _TAG).wait()
            return
        received = torch.empty(into.shape, dtype=into.dtype, pin_memory=True)
        self._gloo.recv([received], owner, _TAG).wait()
        into.copy_(received)

    def watch(self, owner: int, size: int) -> None:
        """Nothing is received here."""


class CollectiveWire(Wire):
    """Broadcasts of all ranks."""

    _nccl: Any = None
    _thrown: Tensor | None = None

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


WIRES: Final[Mapping[str, type[Wire]]] = {"direct": DirectWire, "collective": CollectiveWire}


@cache
def _client(host: str, port: int) -> Any:
    return _DIST.TCPStore(host, port, is_master=False, wait_for_workers=False)


@cache
def hosted(host: str) -> Any:
    """The store of all epochs, which one of the senders holds."""
    return _DIST.TCPStore(host, 0, is_master=True, wait_for_workers=False)
