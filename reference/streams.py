"""Streams, events and host memory of a device: the only lines that know whether a device computes
beside its host.

Work given to one stream runs in order. Work of another stream comes behind it only if that stream
waits for an event, or for the stream. Memory belongs to the stream on which it was made, and is
used again once that stream has come to the point where it was freed; so whoever uses it on another
stream says so with `keep`. The host waits with `synchronize`.

Every caller writes these steps for every device. A CPU computes while its host waits: there nothing
is ever open, and the steps do nothing. `KINDS` is where tests put a third kind, which follows the
order of every read, write and release, and finds what nobody waits for
(`tests/reference/ordering.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Literal, Protocol

import torch
from torch import Tensor


class Event(Protocol):
    """A moment in the order of a stream's work."""

    def synchronize(self) -> None:
        """The host waits for it."""
        ...


class Stream(Protocol):
    """Work in order."""

    def record_event(self) -> Any:
        """The `Event` behind all that the stream has been given."""
        ...

    def wait_event(self, event: Any) -> None:
        """What the stream is given from now on comes behind the event."""
        ...

    def wait_stream(self, stream: Any) -> None:
        """What it is given from now on comes behind all that another has been given."""
        ...

    def synchronize(self) -> None:
        """The host waits for all that the stream has been given."""
        ...


class Streams(ABC):
    """The streams of one kind of device."""

    backend: Literal["gloo", "nccl"]
    """What moves its tensors between ranks."""

    @abstractmethod
    def new(self, device: torch.device) -> Stream:
        """A stream that waits for no other."""

    @abstractmethod
    def current(self, device: torch.device) -> Stream:
        """The stream to which this thread gives its work."""

    @abstractmethod
    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Within, this thread gives its work to a stream."""

    @abstractmethod
    def keep(self, tensor: Tensor, stream: Any) -> None:
        """A tensor's memory is used again only when a stream is done with what it has been given by
        then; the stream is not the one on which the memory was made."""

    @abstractmethod
    def copy(self, into: Tensor, source: Tensor) -> None:
        """Copy on the current stream; the host goes on. The two are on the device, or in memory
        that `host` made."""

    @abstractmethod
    def host(self, shape: torch.Size, dtype: torch.dtype, place: str) -> Tensor:
        """Host memory that the device reaches by itself. `place` is torch's name of the host."""

    @abstractmethod
    def from_device(self, tensor: Tensor) -> Tensor:
        """The numbers in host memory, once they are there."""

    @abstractmethod
    def for_device(self, tensor: Tensor) -> Tensor:
        """Host memory for what `copy` then brings into a tensor of the device; the tensor itself
        where that is host memory."""


class _Done:
    """A stream and an event of a device that never lags behind its host."""

    def record_event(self) -> Event:
        return self

    def wait_event(self, event: Event) -> None:
        event.synchronize()

    def wait_stream(self, stream: Any) -> None:
        """Nothing is open."""

    def synchronize(self) -> None:
        """Nothing is open."""


class HostStreams(Streams):
    """A CPU, and tensors without numbers."""

    backend = "gloo"
    _done: Final = _Done()
    _within: Final = nullcontext()

    def new(self, device: torch.device) -> Stream:  # noqa: ARG002  one for all
        """It is always done."""
        return self._done

    def current(self, device: torch.device) -> Stream:  # noqa: ARG002  one for all
        """It is always done."""
        return self._done

    def on(self, stream: Any) -> AbstractContextManager[Any]:  # noqa: ARG002  one for all
        """All streams are one."""
        return self._within

    def keep(self, tensor: Tensor, stream: Any) -> None:
        """Nobody uses it any more when it is freed."""

    def copy(self, into: Tensor, source: Tensor) -> None:
        """At once."""
        into.copy_(source)

    def host(self, shape: torch.Size, dtype: torch.dtype, place: str) -> Tensor:
        """Any memory."""
        return torch.empty(shape, dtype=dtype, device=place)

    def from_device(self, tensor: Tensor) -> Tensor:
        """It is there."""
        return tensor

    def for_device(self, tensor: Tensor) -> Tensor:
        """The tensor itself."""
        return tensor


class CudaStreams(Streams):
    """A GPU."""

    backend = "nccl"

    def new(self, device: torch.device) -> Stream:
        """One of torch's pool."""
        return torch.cuda.Stream(device)

    def current(self, device: torch.device) -> Stream:
        """Of this device, whichever device is the thread's."""
        return torch.cuda.current_stream(device)

    def on(self, stream: torch.cuda.Stream) -> AbstractContextManager[Any]:
        """The stream's device is the thread's within, too."""
        return torch.cuda.stream(stream)

    def keep(self, tensor: Tensor, stream: torch.cuda.Stream) -> None:
        """As torch's allocator does it."""
        tensor.record_stream(stream)

    def copy(self, into: Tensor, source: Tensor) -> None:
        """Pinned memory stays until the copy is over, when it is freed earlier."""
        into.copy_(source, non_blocking=True)

    def host(self, shape: torch.Size, dtype: torch.dtype, place: str) -> Tensor:
        """Pinned memory."""
        return torch.empty(shape, dtype=dtype, device=place, pin_memory=True)

    def from_device(self, tensor: Tensor) -> Tensor:
        """A copy."""
        return tensor.cpu()

    def for_device(self, tensor: Tensor) -> Tensor:
        """Pinned memory."""
        return self.host(tensor.shape, tensor.dtype, "cpu")


KINDS: Final[dict[str, Streams]] = {"cuda": CudaStreams()}
"""By type of device."""
_HOST: Final = HostStreams()


def of(device: torch.device) -> Streams:
    """The streams of a device."""
    return KINDS.get(device.type, _HOST)


def current(device: torch.device) -> Stream:
    """The stream of a device to which this thread gives its work."""
    return of(device).current(device)
