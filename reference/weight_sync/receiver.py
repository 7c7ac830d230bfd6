"""An inference rank in an update: it receives every bucket into one half of a buffer, and puts what
it needs of the last one, in the other half, into its own weights meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from reference.weight_sync.buckets import Bucket
from reference.weight_sync.fetch import Address, fetched
from reference.weight_sync.layout import Seat
from reference.weight_sync.needs import Needs, Take, digest, needs_of, put, reload
from reference.weight_sync.order import Joined, Order, Report
from reference.weight_sync.record import Record
from reference.weight_sync.sender import gone
from reference.weight_sync.target import Target
from reference.weight_sync.units import Unit
from reference.weight_sync.wires import Wire
from twin.errors import Problem, UsageError


def _nothing(bucket: Bucket) -> None:
    del bucket


class Receiver:
    """What a controller asks of an inference rank, method by method.

    `version` is None while its weights are of two versions, and after an update that failed: no
    token may be drawn from them then.
    """

    def __init__(
        self,
        target_of: Callable[[Needs], Target],
        device: torch.device | str = "cpu",
        before_reload: Callable[[Bucket], None] = _nothing,
    ) -> None:
        """`before_reload` is told of every bucket that has come: for tests that end the process."""
        self._target_of, self._device = target_of, torch.device(device)
        self._before_reload = before_reload
        self._units: tuple[Unit, ...] = ()
        self._needs = Needs({}, {})
        self.target: Target | None = None
        self.version: int | None = None
        self._joined = Joined(self._device)
        self._record = Record()

    def learn(self, units: Sequence[Unit], seat: Seat, tied: bool) -> int:
        """Hear what travels, and which rank of the layout this is; the bytes that it keeps."""
        self._units = tuple(units)
        self._needs = needs_of(units, seat, tied=tied)
        self.target = self._target_of(self._needs)
        self.version = None
        return self._needs.bytes

    def free(self) -> float:
        """Bytes of device memory that nobody uses; infinite on a CPU."""
        if self._device.type != "cuda":
            return float("inf")
        return float(torch.cuda.mem_get_info(self._device)[0])

    def update(self, order: Order) -> Report:
        """Receive all buckets, and take what is needed. Raises UsageError: TW623 where an owner is
        gone, TW624 where weights could not be put in place; other ranks go on."""
        self.version = None
        try:
            with self._record.span("regroup"):
                wire = self._joined.wire(order)
            wrong = self._receive(order, wire)
        except RuntimeError as error:
            self._joined.leave()
            self._record.taken()
            raise gone(error) from error
        spans = self._record.taken()
        if wrong is not None:
            message = f"a bucket could not be reloaded: {wrong}"
            raise UsageError([Problem("TW624", "", message, "mend it, and recover")]) from wrong
        self._end(order.version)
        return Report(spans, self._needs.bytes)

    def recover(
        self, addresses: Sequence[Address], owners: Mapping[str, int], version: int
    ) -> Report:
        """Read what is needed, and no more, from the host copies of its owners: alone, while all
        others go on. Raises UsageError TW623 or TW625."""
        self.version = None
        needed = [unit for unit in self._units if self._needs.takes.get(unit.name)]
        for owner, address in enumerate(addresses):
            own = [unit for unit in needed if owners[unit.name] == owner]
            if not own:
                continue
            with self._record.span("fetch", size=sum(unit.bytes for unit in own)):
                for unit, tensor in fetched(address, own, version, patience=60.0):
                    put(tensor, self._needs.takes[unit.name], self._tensors)
        self._end(version)
        spans = self._record.taken()
        return Report(spans, sum(one.bytes for one in spans))

    def takes(self) -> Mapping[str, Sequence[Take]]:
        """What it takes, by tensor of the full set."""
        return self._needs.takes

    def digests(self) -> dict[str, list[str]]:
        """What it holds of each."""
        return {
            name: [digest(self._tensors[one.target][one.into]) for one in taken]
            for name, taken in self._needs.takes.items()
        }

    @property
    def _tensors(self) -> Mapping[str, Tensor]:
        assert self.target is not None, "it has to learn what travels before"
        return self.target.tensors

    def _end(self, version: int) -> None:
        assert self.target is not None
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.target.end(version)
        self.version = version

    def _receive(self, order: Order, wire: Wire) -> Exception | None:
        """All buckets, in two halves in turn; the first error of a reload. Behind one nothing is
        reloaded any more, but all is received: owners must not wait."""
        size = max(one.bytes for one in order.buckets)
        halves = [torch.empty(size, dtype=torch.uint8, device=self._device) for _ in range(2)]
        wrong: Exception | None = None
        with ThreadPoolExecutor(1, "reload") as beside:
            last: Future[None] | None = None
            for number, bucket in enumerate(order.buckets):
                half = halves[number % 2][: bucket.bytes]
                with self._record.span("broadcast", bucket):
                    wire.receive(bucket.owner, half)
                with self._record.span("handover", bucket):
                    wrong = wrong or _error(last)
                last = None if wrong else beside.submit(self._reload, bucket, half)
            return wrong or _error(last)

    def _reload(self, bucket: Bucket, half: Tensor) -> None:
        self._before_reload(bucket)
        with self._record.span("reload", bucket):
            reload(bucket, half, self._needs, self._tensors)
            if self._device.type == "cuda":
                torch.cuda.current_stream(self._device).synchronize()


def _error(reloading: Future[None] | None) -> Exception | None:
    """What a reload raised, once it is over."""
    error = reloading.exception() if reloading is not None else None
    if error is not None and not isinstance(error, Exception):
        raise error
    return error
