"""What an owner copies while a bucket is on the way, on a wire that waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import get_args

import pytest
import torch
from torch import Tensor

from reference.weight_sync.layout import Buffers, WeightBucket
from reference.weight_sync.pipeline import SENDS, BucketSender, Stages, Wire
from reference.weight_sync.sources import HostCopies

_BYTES = 64
_BUCKETS = [WeightBucket(0, turn, turn * _BYTES, _BYTES, ()) for turn in range(5)]
_PATIENCE = 5.0
"""Seconds until a copy that has not begun is taken to be none."""


class Watched(HostCopies):
    """Host copies that tell of each bucket that is asked for, and whether the last one was on the
    way then: a copy waits for that."""

    def __init__(self, buckets: Sequence[WeightBucket]) -> None:
        super().__init__(())
        self.memory = torch.arange(len(buckets) * _BYTES, dtype=torch.int64).to(torch.uint8)
        self.begun, self.on_the_way = ([Event() for _ in buckets] for _ in range(2))
        self.beside: list[bool] = []

    def part(self, bucket: WeightBucket) -> Tensor:
        self.begun[bucket.round].set()
        if bucket.round:
            self.beside.append(self.on_the_way[bucket.round - 1].wait(_PATIENCE))
        return super().part(bucket)


class Waiting(Wire):
    """A wire on which a bucket is on the way until the copy of the next one begins, or patience is
    over."""

    def __init__(self, host: Watched, patience: float) -> None:
        self.lost: set[int] = set()
        self.arrived: list[Tensor] = []
        self.ahead: list[bool] = []
        self._host, self._patience = host, patience

    def send(self, data: Tensor) -> None:
        self._host.on_the_way[len(self.arrived)].set()
        following = self._host.begun[len(self.arrived) + 1 :]
        self.ahead += [one.wait(self._patience) for one in following[:1]]
        assert not any(one.is_set() for one in following[1:])  # there is one copy buffer
        self.arrived.append(data.clone())

    def receive(self, owner: int, into: Tensor) -> None:
        raise AssertionError((owner, into))

    def watch(self, owner: int, size: int) -> None:
        raise AssertionError((owner, size))

    def meet(self) -> None:
        """The only owner is here."""


@pytest.mark.parametrize("buffers", [2, 3])
@pytest.mark.parametrize("stages", get_args(Stages))
def test_three_stages_with_a_copy_buffer_copy_the_next_bucket_while_one_is_on_the_way(
    stages: Stages, buffers: int
) -> None:
    ahead = stages == "three" and buffers == 3
    host = Watched(_BUCKETS)
    wire = Waiting(host, _PATIENCE if ahead else 0.0)
    SENDS[stages](
        BucketSender(0, _BUCKETS, host, wire, (Buffers(_BYTES, buffers), torch.device("cpu")))
    )
    assert wire.ahead == [ahead] * 4
    assert all(host.beside)
    assert torch.equal(torch.cat(wire.arrived), host.memory)
