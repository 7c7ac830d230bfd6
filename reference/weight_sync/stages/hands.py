"""What an owner can do with its buckets: copy one from the host, move it to where it is sent from,
send it, and let others send theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor

from reference.weight_sync.buckets import Bucket, Buffers
from reference.weight_sync.host import HostCopies
from reference.weight_sync.record import Record
from reference.weight_sync.wires import Wire


@dataclass(slots=True)
class Hands:
    """An owner's buffers, and the wire. Buffers: one for the copy from the host, unless the memory
    holds two only, and one to send from; a receiver has two halves in its place."""

    owner: int
    buckets: Sequence[Bucket]
    host: HostCopies
    wire: Wire
    record: Record
    copied: Tensor | None
    """Filled by `copy`; None without a buffer for it."""
    sent: Tensor
    stream: torch.cuda.Stream | None = field(default=None)
    """Of copies from the host, beside what computes."""

    @property
    def rounds(self) -> list[tuple[Bucket, ...]]:
        """The buckets by round, in the order in which they travel."""
        return [tuple(group) for _, group in groupby(self.buckets, key=lambda one: one.round)]

    @property
    def own(self) -> list[Bucket]:
        """The owner's, in order."""
        return [one for one in self.buckets if one.owner == self.owner]

    def copy(self, bucket: Bucket) -> None:
        """From the host into the copy buffer."""
        assert self.copied is not None
        with self.record.span("host_copy", bucket):
            self._from_host(self.copied[: bucket.bytes], bucket)

    def send(self, bucket: Bucket) -> None:
        """The bucket to all receivers, if it is the owner's, else the time that it takes."""
        if bucket.owner != self.owner:
            self.wire.watch(bucket.owner, bucket.bytes)
            return
        with self.record.span("broadcast", bucket):
            self.wire.send(self.sent[: bucket.bytes])

    def move(self, bucket: Bucket) -> None:
        """From the copy buffer to where it is sent from, so that the next copy may come. Without a
        copy buffer straight from the host."""
        if self.copied is None:
            with self.record.span("host_copy", bucket):
                self._from_host(self.sent[: bucket.bytes], bucket)
            return
        self.sent[: bucket.bytes].copy_(self.copied[: bucket.bytes])

    def meet(self) -> None:
        """Until all owners are here."""
        self.wire.meet()

    def _from_host(self, into: Tensor, bucket: Bucket) -> None:
        if self.stream is None:
            into.copy_(self.host.part(bucket))
            return
        with torch.cuda.stream(self.stream):
            into.copy_(self.host.part(bucket), non_blocking=True)
        self.stream.synchronize()


def hands_of(
    owner: int,
    buckets: Sequence[Bucket],
    host: HostCopies,
    wire: Wire,
    space: tuple[Buffers, torch.device],
) -> Hands:
    """The hands of an owner with buffers on a device, as large as its largest bucket."""
    sizes, device = space
    size = max((one.bytes for one in buckets if one.owner == owner), default=0)
    assert size <= sizes.bytes, f"a bucket of {size} bytes, and buffers of {sizes.bytes}"
    made = [torch.empty(size, dtype=torch.uint8, device=device) for _ in range(sizes.count - 1)]
    stream = torch.cuda.Stream(device) if device.type == "cuda" else None
    copied = made[1] if len(made) > 1 else None
    return Hands(owner, buckets, host, wire, Record(), copied, made[0], stream)
