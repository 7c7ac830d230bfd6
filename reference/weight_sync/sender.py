"""A rank of the trainer in an update: it keeps its share of the full set in host memory, sends it,
and lets who recovers read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import torch

from reference.model import Transformer
from reference.weight_sync.fetch import Address, Library
from reference.weight_sync.host import HostCopies
from reference.weight_sync.needs import Take, digest
from reference.weight_sync.order import Joined, Order, Report
from reference.weight_sync.read import Saved, read
from reference.weight_sync.record import Record, Span
from reference.weight_sync.stages import SENDS
from reference.weight_sync.stages.hands import hands_of
from reference.weight_sync.units import Unit, values
from reference.weight_sync.wires.base import hosted
from twin.errors import Problem, UsageError


class Sender:
    """What a controller asks of a rank of the trainer, method by method."""

    def __init__(
        self,
        parts: Callable[[], Iterable[Transformer]],
        device: torch.device | str = "cpu",
        host: str = "127.0.0.1",
    ) -> None:
        """`parts` are the rank's, of the model, each time that it keeps them."""
        self._parts, self._device, self._host = parts, torch.device(device), host
        self._copies = HostCopies(())
        self._library: Library | None = None
        self._joined = Joined(self._device)
        self._record = Record()

    def meeting_place(self) -> tuple[str, int]:
        """Address and port at which all ranks find each other; one sender is asked."""
        return self._host, hosted(self._host).port

    def own(self, units: Sequence[Unit]) -> Address:
        """Take a share of the full set; where it may be read."""
        if self._library is not None:
            self._library.close()
        self._copies = HostCopies(units, pinned=self._device.type == "cuda")
        self._library = Library(self._copies, self._host)
        return self._library.address

    def free(self) -> float:
        """Bytes of device memory that nobody uses; infinite on a CPU."""
        if self._device.type != "cuda":
            return float("inf")
        return float(torch.cuda.mem_get_info(self._device)[0])

    def keep(self, version: int) -> int:
        """Copy the share out of the model; the bytes."""
        with self._record.span("keep", size=self._copies.bytes):
            return self._copies.gather(values(self._parts()), version)

    def read(self, checkpoint: Path, pieces: Sequence[Saved], version: int) -> int:
        """Read the share from a checkpoint; the bytes from disk."""
        size = sum(piece.bytes for piece in pieces)
        with self._record.span("read", size=size):
            return read(checkpoint, pieces, self._copies, version)

    def update(self, order: Order) -> Report:
        """Send all of the share. Raises UsageError TW623 where others are gone that it needs."""
        if self._copies.version != order.version:
            message = f"version {order.version} is not kept here"
            fix = f"keep it first: this is {self._copies.version}"
            raise UsageError([Problem("TW625", "version", message, fix)])
        owner, space = order.meeting.rank, (order.buffers, self._device)
        try:
            with self._record.span("regroup"):
                wire = self._joined.wire(order)
            hands = hands_of(owner, order.buckets, self._copies, wire, space)
            SENDS[order.stages](hands)
        except RuntimeError as error:
            self._joined.leave()
            self._record.taken()
            raise gone(error) from error
        spans = (*self._record.taken(), *hands.record.taken())
        return Report(spans, sum(one.bytes for one in hands.own), tuple(sorted(wire.lost)))

    def digests(self, takes: Mapping[str, Sequence[Take]]) -> dict[str, list[str]]:
        """What a receiver's parts of the share have to be, by tensor of the full set."""
        return {
            name: [digest(self._copies.tensor(name)[one.source]) for one in wanted]
            for name, wanted in takes.items()
            if name in self._copies.units
        }

    def spent(self) -> tuple[Span, ...]:
        """What it did since the last update."""
        return self._record.taken()


def gone(error: RuntimeError) -> UsageError:
    """What a broken wire says, for people."""
    said = str(error).strip().splitlines()
    message = f"a rank of the update is gone ({said[0] if said else type(error).__name__})"
    return UsageError([Problem("TW623", "", message, "do the update again without it")])
