"""In which order an owner copies its buckets from the host and sends them.

`two` stages, as checkpoint-engine runs: in each round all owners copy their next bucket from the
host together, while nothing is sent; then one bucket after another goes to all receivers, which
reload one while the next is sent (Kimi K2, arXiv:2507.20534, appendix G: on H800 copies from the
host and broadcasts share PCIe).

`three` stages: an owner copies its next bucket from the host as soon as the last one has left the
copy buffer, whatever is being sent (the same appendix: the ideal). Without a copy buffer there is
nothing to copy into, and it is as two stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from typing import Final, Literal

import torch
from torch import Tensor

from reference.weight_sync.buckets import Buffers, WeightBucket
from reference.weight_sync.host_copies import HostCopies
from reference.weight_sync.record import Record
from reference.weight_sync.transport import Wire

Stages = Literal["two", "three"]


class BucketSender:
    """An owner's buckets, its buffers and the wire. Buffers: one for the copy from the host, unless
    memory holds two only, and one to send from; a receiver has two halves in its place."""

    def __init__(
        self,
        owner: int,
        buckets: Sequence[WeightBucket],
        host: HostCopies,
        wire: Wire,
        space: tuple[Buffers, torch.device],
    ) -> None:
        self.owner, self.buckets, self.record = owner, buckets, Record()
        self._host, self._wire = host, wire
        sizes, device = space
        size = max((bucket.bytes for bucket in self.own), default=0)
        assert size <= sizes.bytes, f"a bucket of {size} bytes, and buffers of {sizes.bytes}"
        made = [torch.empty(size, dtype=torch.uint8, device=device) for _ in range(sizes.count - 1)]
        self._sent = made[0]
        self.copied = made[1] if len(made) > 1 else None
        """Filled by `copy`; None without a buffer for it."""
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        """Of copies from the host, beside what computes."""

    @property
    def rounds(self) -> list[tuple[WeightBucket, ...]]:
        """The buckets by round, in the order in which they travel."""
        return [tuple(group) for _, group in groupby(self.buckets, key=lambda each: each.round)]

    @property
    def own(self) -> list[WeightBucket]:
        """The owner's, in order."""
        return [bucket for bucket in self.buckets if bucket.owner == self.owner]

    def copy(self, bucket: WeightBucket) -> None:
        """From the host into the copy buffer."""
        assert self.copied is not None
        self._from_host(self.copied[: bucket.bytes], bucket)

    def send(self, bucket: WeightBucket) -> None:
        """The bucket to all receivers, if it is the owner's, else the time that it takes."""
        if bucket.owner != self.owner:
            self._wire.watch(bucket.owner, bucket.bytes)
            return
        with self.record.span("broadcast", bucket):
            self._wire.send(self._sent[: bucket.bytes])

    def move(self, bucket: WeightBucket) -> None:
        """From the copy buffer to where it is sent from, so that the next copy may begin. Without a
        copy buffer straight from the host."""
        sent = self._sent[: bucket.bytes]
        if self.copied is None:
            self._from_host(sent, bucket)
        else:
            sent.copy_(self.copied[: bucket.bytes])

    def meet(self) -> None:
        """Until all owners are here."""
        self._wire.meet()

    def _from_host(self, into: Tensor, bucket: WeightBucket) -> None:
        with self.record.span("host_copy", bucket):
            if self._stream is None:
                into.copy_(self._host.part(bucket))
                return
            with torch.cuda.stream(self._stream):
                into.copy_(self._host.part(bucket), non_blocking=True)
            self._stream.synchronize()


def send_in_two(sender: BucketSender) -> None:
    """All rounds of one owner: copies, then broadcasts."""
    together = sender.copied is not None
    for turn in sender.rounds:
        own = next((bucket for bucket in turn if bucket.owner == sender.owner), None)
        if together:
            sender.meet()  # what was sent before has arrived
            if own is not None:
                sender.copy(own)
            sender.meet()
        for bucket in turn:
            if bucket is own:
                sender.move(bucket)
            sender.send(bucket)


def send_in_three(sender: BucketSender) -> None:
    """All rounds of one owner: copies beside broadcasts."""
    ahead = iter(sender.own if sender.copied is not None else ())
    with ThreadPoolExecutor(1, "host copies") as beside:

        def begin() -> Future[None] | None:
            bucket = next(ahead, None)
            return beside.submit(sender.copy, bucket) if bucket is not None else None

        copying = begin()
        for bucket in sender.buckets:
            if bucket.owner == sender.owner:
                if copying is not None:
                    copying.result()
                sender.move(bucket)
                copying = begin()
            sender.send(bucket)


SENDS: Final[Mapping[Stages, Callable[[BucketSender], None]]] = {
    "two": send_in_two,
    "three": send_in_three,
}
