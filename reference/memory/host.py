"""Copies between a device and host memory that run beside the device's work.

They run on two streams, one out and one back, since PCIe carries both directions at once. Where
"host" and "device" are the same memory the copies are made all the same, so that numbers and
accounting are those of a real device; nothing is won.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Literal

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from reference import streams
from reference.streams import Event, Stream, Streams

Way = Literal["out", "back"]


@contextmanager
def beside(device: torch.device, way: Way) -> Iterator[Stream]:
    """Copies inside run beside the device's work, after what it has been given so far; on the
    yielded stream."""
    kind = streams.of(device)
    stream = _stream(kind, device, way)
    stream.wait_stream(kind.current(device))
    with kind.on(stream):
        yield stream


def host_like(tensor: Tensor) -> Tensor:
    """Host memory for a copy, which a GPU can reach by itself. A tensor without numbers can be
    copied to no CPU, unless CPUs have none either (`FakeTensor`)."""
    host = "meta" if tensor.is_meta and not isinstance(tensor, FakeTensor) else "cpu"
    return streams.of(tensor.device).host(tensor.shape, tensor.dtype, host)


class Parcel:
    """A tensor on its device, in host memory, or on its way between them."""

    __slots__ = ("device", "moved", "on_host", "value")

    def __init__(
        self, tensor: Tensor, device: torch.device | None = None, moved: Event | None = None
    ) -> None:
        """`device`: where the tensor belongs, if it is in host memory, or will be once it has
        `moved`."""
        self.device = device or tensor.device
        self.value = tensor
        """Where it is, or will be when the copies under way are complete."""
        self.on_host = device is not None
        self.moved = moved
        """Behind the copy to where it is; None where nobody has to wait."""

    def tensor(self) -> Tensor:
        """The tensor on its device, fetched now if nobody did before."""
        if self.on_host:
            fetch([self])
        if self.moved is not None:
            streams.current(self.device).wait_event(self.moved)
            self.moved = None
        return self.value

    def leave(self, stream: Stream) -> None:
        """Copy to host memory on the current stream, and let go of the device's."""
        kind, there = streams.of(self.device), host_like(self.value)
        kind.copy(there, self.value)
        kind.keep(self.value, stream)
        self.value, self.on_host = there, True

    def come(self, here: Tensor, stream: Stream) -> None:
        """Copy to memory of the device on the current stream, and let go of the host's."""
        kind = streams.of(self.device)
        kind.copy(here, self.value)
        kind.keep(here, stream)
        self.value, self.on_host, self.moved = here, False, stream.record_event()


class Underway:
    """An event where there are no numbers and nothing takes time: what was sent is there until
    somebody waits for it to be gone, as with the slowest link that makes nobody wait."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._tensors = tensors

    def synchronize(self) -> None:
        """It is gone."""
        self._tensors.clear()


def send(parcels: Iterable[Parcel]) -> Event | None:
    """Copy to host memory what is on the device, whose memory is free once the copy is out: the
    event says when."""
    here = [one for one in parcels if not one.on_host]
    if not here:
        return None
    going = Underway([one.value for one in here]) if here[0].value.is_meta else None
    with beside(here[0].device, "out") as stream:
        for one in here:
            one.leave(stream)
        sent = going or stream.record_event()
    for one in here:
        one.moved = sent
    return sent


def fetch(parcels: Iterable[Parcel]) -> None:
    """Begin to copy back to the device what is on the host, once it is there; whoever uses it waits
    for it (`Parcel.tensor`)."""
    away = [one for one in parcels if one.on_host]
    if not away:
        return
    device = away[0].device
    stream = _stream(streams.of(device), device, "back")
    for sent in {id(one.moved): one.moved for one in away}.values():
        if sent is not None:
            stream.wait_event(sent)
    # Made outside of the copies' stream, whose order begins where this memory is free.
    room = [torch.empty_like(one.value, device=device) for one in away]
    with beside(device, "back"):
        for one, here in zip(away, room, strict=True):
            one.come(here, stream)


@cache
def _stream(kind: Streams, device: torch.device, way: Way) -> Stream:  # noqa: ARG001  one for each
    return kind.new(device)
