"""What a wire is, and where its ranks meet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, Protocol

import torch.distributed as dist
from torch import Tensor


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
    """Seconds until a rank that says nothing is taken to be gone."""

    def store(self, name: str) -> Any:
        """Where the ranks of this epoch find each other."""
        return _DIST.PrefixStore(f"{name}/{self.epoch}", _client(self.host, self.port))

    @property
    def receivers(self) -> range:
        """Their ranks."""
        return range(self.senders, self.ranks)

    @property
    def timeout(self) -> timedelta:
        """The patience, as torch wants it."""
        return timedelta(seconds=self.patience)

    def gloo(self, name: str, rank: int, ranks: int) -> Any:
        """A gloo group of its own, whatever groups the process has beside it; torch's stub lacks
        its methods."""
        return _DIST.ProcessGroupGloo(self.store(name), rank, ranks, self.timeout)


class Wire(Protocol):
    """One rank's end. A call raises RuntimeError where a rank that it cannot do without is gone."""

    lost: set[int]
    """Ranks of receivers that are gone; a sender goes on without them if it can."""

    def send(self, data: Tensor) -> None:
        """A bucket of its own, to all receivers."""
        ...

    def receive(self, owner: int, into: Tensor) -> None:
        """A bucket of an owner."""
        ...

    def watch(self, owner: int, size: int) -> None:
        """Another owner sends a bucket of so many bytes."""
        ...

    def meet(self) -> None:
        """Until all senders are here."""
        ...


_DIST: Any = dist
"""Its stub does not export stores."""


@cache
def _client(host: str, port: int) -> Any:
    return _DIST.TCPStore(host, port, is_master=False, wait_for_workers=False)


@cache
def hosted(host: str) -> Any:
    """The store of all epochs, which one of the senders holds."""
    return _DIST.TCPStore(host, 0, is_master=True, wait_for_workers=False)
