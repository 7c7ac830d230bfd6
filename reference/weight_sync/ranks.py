"""The ranks of an update, method by method as a controller calls them.

A sender, a rank of the trainer, keeps its share of the full set in host memory, sends it, and lets
recovering receivers read it. A receiver, an inference rank, receives every bucket into one half of
a buffer, and puts what it needs of the last one, in the other half, into its own weights meanwhile.

An update in one process: trainer and engine take turns on the same device, and nothing has to be
sent. What a colocated controller does between a step of training and the next rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from reference import streams
from reference.inference.engine import Engine
from reference.machine import pick
from reference.model import Transformer
from reference.weight_sync.layout import (
    Buffers,
    LayoutSpec,
    RankLayout,
    SyncSpec,
    Unit,
    WeightBucket,
    buckets,
    buffers,
    full_set,
    largest,
    seats,
    shares,
    values,
)
from reference.weight_sync.needs import Needs, Take, Target, digest, needs_of, put, reload
from reference.weight_sync.pipeline import (
    SENDS,
    WIRES,
    BucketSender,
    Meeting,
    Record,
    Stages,
    StageSpan,
    Wire,
    hosted,
)
from reference.weight_sync.sources import Address, HostCopies, Library, SavedPiece, fetched, read
from twin.errors import Problem, UsageError
from twin.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class UpdateOrder:
    """An update, the same for all but the rank in the meeting."""

    meeting: Meeting
    wire: str
    stages: Stages
    buckets: tuple[WeightBucket, ...]
    buffers: Buffers
    version: int


@dataclass(frozen=True, slots=True)
class RankReport:
    """What a rank did."""

    spans: tuple[StageSpan, ...]
    bytes: int
    """A sender's: sent, once for all receivers; a receiver's: kept."""
    lost: tuple[int, ...] = ()
    """Receivers that were gone, by their rank in the meeting."""


class _Rank:
    """What senders and receivers have in common: a device, a record, and a wire that is made anew
    when other ranks meet."""

    def __init__(self, device: torch.device | str) -> None:
        self._device = torch.device(device)
        self._record = Record()
        self._wire: Wire | None = None
        self._key: tuple[str, int, str] | None = None

    def free(self) -> float:
        """Bytes of device memory that nobody uses; infinite on a CPU."""
        if self._device.type != "cuda":
            return float("inf")
        return float(torch.cuda.mem_get_info(self._device)[0])

    def _joined(self, order: UpdateOrder) -> Wire:
        """The wire of an order's meeting. Raises RuntimeError where a rank is missing."""
        meeting = order.meeting
        key = meeting.host, meeting.epoch, order.wire
        with self._record.span("regroup"):
            if self._wire is None or self._key != key:
                self._wire = None
                self._wire, self._key = WIRES[order.wire](meeting, self._device), key
        return self._wire

    def _left(self, error: RuntimeError) -> UsageError:
        """Close the connections, so that nobody waits for this rank; the error for people."""
        self._wire = self._key = None
        self._record.taken()
        said = str(error).strip().splitlines()
        message = f"a rank of the update is gone ({said[0] if said else type(error).__name__})"
        return UsageError([Problem("TW623", "", message, "do the update again without it")])


class Sender(_Rank):
    """A rank of the trainer."""

    def __init__(
        self,
        parts: Callable[[], Iterable[Transformer]],
        device: torch.device | str = "cpu",
        host: str = "127.0.0.1",
    ) -> None:
        """`parts` are the rank's, of the model, each time that it keeps them."""
        super().__init__(device)
        self._parts, self._host = parts, host
        self._copies = HostCopies(())
        self._library: Library | None = None

    def meeting_place(self) -> tuple[str, int]:
        """Address and port at which all ranks find each other; one sender is asked."""
        return self._host, hosted(self._host).port

    def own(self, units: Sequence[Unit]) -> Address:
        """Take a share of the full set; where it may be read."""
        if self._library is not None:
            self._library.close()
        self._copies = HostCopies(units, self._device)
        self._library = Library(self._copies, self._host)
        return self._library.address

    def keep(self, version: int) -> int:
        """Copy the share out of the model; the bytes."""
        with self._record.span("keep", size=self._copies.bytes):
            return self._copies.gather(values(self._parts()), version)

    def read(self, checkpoint: Path, pieces: Sequence[SavedPiece], version: int) -> int:
        """Read the share from a checkpoint; the bytes from disk."""
        size = sum(piece.bytes for piece in pieces)
        with self._record.span("read", size=size):
            return read(checkpoint, pieces, self._copies, version)

    def update(self, order: UpdateOrder) -> RankReport:
        """Send all of the share. Raises UsageError TW623 where needed ranks are gone."""
        if self._copies.version != order.version:
            message = f"version {order.version} is not kept here"
            fix = f"keep it first: this is {self._copies.version}"
            raise UsageError([Problem("TW625", "version", message, fix)])
        owner, space = order.meeting.rank, (order.buffers, self._device)
        try:
            wire = self._joined(order)
            sender = BucketSender(owner, order.buckets, self._copies, wire, space)
            SENDS[order.stages](sender)
        except RuntimeError as error:
            raise self._left(error) from error
        spans = (*self._record.taken(), *sender.record.taken())
        sent = sum(bucket.bytes for bucket in sender.own)
        return RankReport(spans, sent, tuple(sorted(wire.lost)))

    def digests(self, takes: Mapping[str, Sequence[Take]]) -> dict[str, list[str]]:
        """The digests that a receiver's parts of the share must have, by tensor of the full set."""
        return {
            name: [digest(self._copies.tensor(name)[take.source]) for take in wanted]
            for name, wanted in takes.items()
            if name in self._copies.units
        }

    def spent(self) -> tuple[StageSpan, ...]:
        """What it did since the last update."""
        return self._record.taken()


def _nothing(bucket: WeightBucket) -> None:
    del bucket


class Receiver(_Rank):
    """An inference rank. `version` is None while its weights are of two versions, and after an
    update that failed: no token may be drawn from them then."""

    def __init__(
        self,
        target_of: Callable[[Needs], Target],
        device: torch.device | str = "cpu",
        before_reload: Callable[[WeightBucket], None] = _nothing,
    ) -> None:
        """`before_reload` is called with every received bucket: for tests that end the process."""
        super().__init__(device)
        self._target_of, self._before_reload = target_of, before_reload
        self._units: tuple[Unit, ...] = ()
        self._needs = Needs({}, {})
        self.target: Target | None = None
        self.version: int | None = None

    def learn(self, units: Sequence[Unit], layout: RankLayout, tied: bool) -> int:
        """Take over what travels, and which rank of the layout this is; the bytes that it keeps."""
        self._units = tuple(units)
        self._needs = needs_of(units, layout, tied=tied)
        self.target = self._target_of(self._needs)
        self.version = None
        return self._needs.bytes

    def update(self, order: UpdateOrder) -> RankReport:
        """Receive all buckets, and take what is needed. Raises UsageError: TW623 where an owner is
        gone, TW624 where weights could not be put in place; other ranks go on."""
        self.version = None
        try:
            wrong = self._receive(order, self._joined(order))
        except RuntimeError as error:
            raise self._left(error) from error
        spans = self._record.taken()
        if wrong is not None:
            message = f"a bucket could not be reloaded: {wrong}"
            raise UsageError([Problem("TW624", "", message, "mend it, and recover")]) from wrong
        self._end(order.version)
        return RankReport(spans, self._needs.bytes)

    def recover(
        self, addresses: Sequence[Address], owners: Mapping[str, int], version: int
    ) -> RankReport:
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
        return RankReport(spans, sum(span.bytes for span in spans))

    def takes(self) -> Mapping[str, Sequence[Take]]:
        """What it takes, by tensor of the full set."""
        return self._needs.takes

    def digests(self) -> dict[str, list[str]]:
        """The digests of what it holds of each."""
        return {
            name: [digest(self._tensors[take.target][take.into]) for take in taken]
            for name, taken in self._needs.takes.items()
        }

    @property
    def _tensors(self) -> Mapping[str, Tensor]:
        assert self.target is not None, "it has to learn what travels before"
        return self.target.tensors

    def _end(self, version: int) -> None:
        streams.current(self._device).synchronize()
        if self.target is not None and self.target.end is not None:
            self.target.end(version)
        self.version = version

    def _receive(self, order: UpdateOrder, wire: Wire) -> Exception | None:
        """All buckets, in two halves in turn; the first error of a reload. After an error nothing
        is reloaded any more, but all is received: owners must not wait."""
        size = max(bucket.bytes for bucket in order.buckets)
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

    def _reload(self, bucket: WeightBucket, half: Tensor) -> None:
        self._before_reload(bucket)
        with self._record.span("reload", bucket):
            reload(bucket, half, self._needs, self._tensors)
            streams.current(self._device).synchronize()


def _error(reloading: Future[None] | None) -> Exception | None:
    """What a reload raised, once it is over."""
    error = reloading.exception() if reloading is not None else None
    if error is not None and not isinstance(error, Exception):
        raise error
    return error


class Colocated:
    """The full set in host memory, between a trainer and an engine of one process."""

    def __init__(self, model: ModelSpec, dtype: torch.dtype, sync: SyncSpec | None = None) -> None:
        self._sync = sync or SyncSpec()
        self._units = full_set(model, dtype)
        (seat,) = seats(LayoutSpec(), model)
        self._needs = needs_of(self._units, seat, tied=model.tied_embeddings)
        alone = {unit.name: (0,) for unit in self._units}
        self._owned = shares(self._units, alone, 1)
        self._copies = HostCopies(self._owned[0], pick("auto"))
        self.record = Record()

    @property
    def bytes(self) -> int:
        """Of the full set."""
        return self._copies.bytes

    def keep(self, parts: Iterable[Transformer], version: int) -> None:
        """Copy the trainer's weights into host memory; the trainer's own may sleep then."""
        with self.record.span("keep", size=self._copies.bytes):
            self._copies.gather(values(parts), version)

    def update(self, target: Target, device: torch.device | str = "cpu") -> None:
        """Put what was kept into an engine: a bucket comes from the host while the one before is
        reloaded, on a GPU; on a CPU in turn."""
        version = self._copies.version
        assert version is not None, "keep weights before"
        space = buffers(self._sync.free_memory, self._sync.bucket, largest(self._units))
        made = buckets(self._owned, space.bytes)
        size = max(bucket.bytes for bucket in made)
        halves = [torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2)]
        for number, bucket in enumerate(made):
            half = halves[number % 2][: bucket.bytes]
            with self.record.span("host_copy", bucket):
                streams.of(half.device).copy(half, self._copies.part(bucket))
            with self.record.span("reload", bucket):
                reload(bucket, half, self._needs, target.tensors)
        streams.current(torch.device(device)).synchronize()
        if target.end is not None:
            target.end(version)


def engine_target(engine: Engine) -> Target:
    """The weights of an engine of one process. It must not step while an update runs, since its
    weights are of two versions then; at the end the cache of the old ones is dropped, and who runs
    goes on under the new ones."""
    tensors = engine.model.state_dict()
    # In place: torch copies nothing.
    return Target(tensors, lambda version: engine.update_weights(tensors, version))
