"""Copies between a device and host memory that run beside the device's work.

On CUDA a copy runs on a stream of its own, into pinned memory: one stream out, one back, since PCIe
carries both directions at once. Anywhere else "host" and "device" are the same memory: the copies
are made all the same, so that numbers and accounting are those of a real device; nothing is won.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Literal

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

Way = Literal["out", "back"]


@contextmanager
def beside(device: torch.device, way: Way) -> Iterator[torch.cuda.Stream | None]:
    """Copies inside run beside the device's work, after what it has been given so far; on the
    yielded stream, None where the device is no GPU."""
    if device.type != "cuda":
        yield None
        return
    stream = _stream(device, way)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield stream


def host_like(tensor: Tensor) -> Tensor:
    """Host memory for a copy, which a GPU can reach by itself. A tensor without numbers can be
    copied to no CPU, unless CPUs have none either (`FakeTensor`)."""
    host = "meta" if tensor.is_meta and not isinstance(tensor, FakeTensor) else "cpu"
    return torch.empty_like(tensor, device=host, pin_memory=tensor.is_cuda)


class Parcel:
    """A tensor on its device, in host memory, or on its way between them."""

    __slots__ = ("_arrived", "device", "on_host", "value")

    def __init__(self, tensor: Tensor, device: torch.device | None = None) -> None:
        """`device`: where the tensor belongs, if it is in host memory now."""
        self.device = device or tensor.device
        self.value = tensor
        """Where it is, or will be when the copies under way are complete."""
        self.on_host = device is not None
        self._arrived: torch.Event | None = None

    def tensor(self) -> Tensor:
        """The tensor on its device, fetched now if nobody did before."""
        if self.on_host:
            fetch([self])
        if self._arrived is not None:
            torch.cuda.current_stream(self.device).wait_event(self._arrived)
            self._arrived = None
        return self.value

    def leave(self, stream: torch.cuda.Stream | None) -> None:
        """Copy to host memory, and let go of the device's."""
        there = host_like(self.value).copy_(self.value, non_blocking=True)
        if stream is not None:
            # The memory is handed out again only when this stream is done with it.
            self.value.record_stream(stream)
        self.value, self.on_host = there, True

    def come(self, here: Tensor, stream: torch.cuda.Stream | None) -> None:
        """Copy to memory of the device, and let go of the host's."""
        here.copy_(self.value, non_blocking=True)
        if stream is not None:
            here.record_stream(stream)
            self._arrived = stream.record_event()
        self.value, self.on_host = here, False


class Underway:
    """An event where there are no numbers and nothing takes time: what was sent is there until
    somebody waits for it to be gone, as with the slowest link that makes nobody wait."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._tensors = tensors

    def wait(self) -> None:
        """It is gone."""
        self._tensors.clear()


def send(parcels: Iterable[Parcel]) -> torch.Event | Underway | None:
    """Copy to host memory what is on the device, whose memory is free once the copy is out: on CUDA
    the event says when."""
    here = [one for one in parcels if not one.on_host]
    if not here:
        return None
    going = Underway([one.value for one in here]) if here[0].value.is_meta else None
    with beside(here[0].device, "out") as stream:
        for one in here:
            one.leave(stream)
    return stream.record_event() if stream else going


def fetch(parcels: Iterable[Parcel], sent: torch.Event | Underway | None = None) -> None:
    """Begin to copy back to the device what is on the host, once it was `sent`; whoever uses it
    waits for it (`Parcel.tensor`)."""
    away = [one for one in parcels if one.on_host]
    if not away:
        return
    device = away[0].device
    if isinstance(sent, Underway):
        sent.wait()
    # Made outside of the copies' stream, whose order begins where this memory is free.
    room = [torch.empty_like(one.value, device=device) for one in away]
    with beside(device, "back") as stream:
        if stream is not None and isinstance(sent, torch.Event):
            stream.wait_event(sent)
        for one, here in zip(away, room, strict=True):
            one.come(here, stream)


@cache
def _stream(device: torch.device, way: Way) -> torch.cuda.Stream:  # noqa: ARG001 - one for each
    return torch.cuda.Stream(device)
