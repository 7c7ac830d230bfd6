"""In which order an owner copies its buckets from the host and sends them.

`two` stages, as checkpoint-engine runs: in each round all owners copy their next bucket from the
host together, while nothing is sent; then one bucket after another goes to all receivers, which
reload one while the next is sent (Kimi K2, arXiv:2507.20534, appendix G: on H800 copies from the
host and broadcasts share PCIe).

`three` stages: an owner copies its next bucket from the host as soon as the last one has left the
copy buffer, whatever is being sent (the same appendix: the ideal). Without a copy buffer there is
nothing to copy into, and it is as two stages.

How a bucket gets from its owner to the receivers, and where the ranks meet.

`direct`: messages from an owner to each receiver, all under way at once, over gloo. A receiver
depends on owners alone: when another one is killed, it notices nothing, and the owner leaves it out
from then on. The price is that an owner sends as many copies as there are receivers, where a tree
or a ring sends fewer from one place; on one machine the bytes are the same. Data on a GPU passes
through host memory: gloo sends from there alone.

`collective`: a broadcast of all ranks, as checkpoint-engine sends it: NCCL's rings on GPUs, gloo's
tree on a CPU. Other senders take part and throw away the data. A rank that is killed breaks the
group for all: they report it, and the controller repeats the update with those that are left. NCCL
was written and has not run.

What each process did when, in nanoseconds of the machine's clock, and what that adds up to.

Stages have the names of `twin.kinds.weight_update.plan.Stage`; `keep` is ours: out of the
trainer's model into host memory, which comes before an update.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from itertools import groupby, pairwise
from time import time_ns
from typing import Any, Final, Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor

from reference import streams
from reference.weight_sync.layout import Buffers, WeightBucket
from reference.weight_sync.sources import HostCopies

Stage = Literal["keep", "regroup", "read", "host_copy", "fetch", "broadcast", "handover", "reload"]
"""`keep`: model to host memory; `regroup`: those who are there join; `read`: from disk;
`host_copy`: host to device; `fetch`: another's host copy; `broadcast`: to all receivers;
`handover`: a receiver waits until its last bucket is reloaded; `reload`: into its own weights."""
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
NONE: Final = -1
"""The round and the owner of what belongs to no bucket."""
Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class StageSpan:
    """Something that took time in one process."""

    stage: Stage
    round: int
    owner: int
    start: int
    end: int
    bytes: int


@dataclass(slots=True)
class Record:
    """The spans of one process."""

    spans: list[StageSpan] = field(default_factory=list[StageSpan])

    @contextmanager
    def span(
        self, stage: Stage, bucket: WeightBucket | None = None, size: int = 0
    ) -> Iterator[None]:
        """Within, a stage is at work."""
        round_, owner = (bucket.round, bucket.owner) if bucket else (NONE, NONE)
        start = time_ns()
        yield
        size = bucket.bytes if bucket else size
        self.spans.append(StageSpan(stage, round_, owner, start, time_ns(), size))

    def taken(self) -> tuple[StageSpan, ...]:
        """All of them, in order of their start; none are left."""
        found = tuple(sorted(self.spans, key=lambda span: span.start))
        self.spans.clear()
        return found


def united(intervals: Iterable[Interval]) -> list[Interval]:
    """The times that any of them covers, in order."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def length(intervals: Iterable[Interval]) -> int:
    """What disjoint ones last together."""
    return sum(end - start for start, end in intervals)


def transfers(senders: Sequence[StageSpan], receivers: Sequence[StageSpan]) -> list[StageSpan]:
    """Broadcasts while bytes could move: an owner waits until the first receiver is there."""
    here: dict[tuple[int, int], int] = {}
    for span in receivers:
        if span.stage == "broadcast":
            key = span.round, span.owner
            here[key] = min(span.start, here.get(key, span.start))
    return [
        replace(span, start=min(span.end, max(span.start, here.get((span.round, span.owner), 0))))
        for span in senders
        if span.stage == "broadcast"
    ]


def summed(
    senders: Sequence[StageSpan], receivers: Sequence[StageSpan]
) -> dict[str, Mapping[str, float]]:
    """By stage: seconds in which it was at work anywhere, spans, and bytes of all spans."""
    moved = [span for span in senders if span.stage != "broadcast"]
    moved += transfers(senders, receivers)
    moved += [span for span in receivers if span.stage != "broadcast"]
    found: dict[str, Mapping[str, float]] = {}
    for stage in STAGES:
        own = [span for span in moved if span.stage == stage]
        if own:
            busy = length(united((span.start, span.end) for span in own)) * 1e-9
            size = sum(span.bytes for span in own)
            found[stage] = {"seconds": busy, "spans": len(own), "bytes": size}
    return found


def overlapped(senders: Sequence[StageSpan], receivers: Sequence[StageSpan]) -> float:
    """Seconds in which two of host copies, broadcasts and reloads, or all three, ran at once."""
    kinds: Sequence[Sequence[StageSpan]] = (
        [span for span in senders if span.stage == "host_copy"],
        transfers(senders, receivers),
        [span for span in receivers if span.stage == "reload"],
    )
    each = [united((span.start, span.end) for span in kind) for kind in kinds]
    edges = sorted({edge for kind in each for interval in kind for edge in interval})
    both = 0
    for start, end in pairwise(edges):
        running = sum(any(a <= start and end <= b for a, b in kind) for kind in each)
        both += (end - start) * (running > 1)
    return both * 1e-9


_TAG = 1
_DIST: Any = dist
"""Its stub does not export stores."""


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
    """Seconds without a word after which a rank counts as gone."""

    def store(self, name: str) -> Any:
        """Where the ranks of this epoch find each other."""
        return _DIST.PrefixStore(f"{name}/{self.epoch}", _client(self.host, self.port))

    @property
    def receivers(self) -> range:
        """Their ranks."""
        return range(self.senders, self.ranks)

    @property
    def timeout(self) -> timedelta:
        """The patience, for torch."""
        return timedelta(seconds=self.patience)

    def gloo(self, name: str, rank: int, ranks: int) -> Any:
        """A gloo group of its own, whatever groups the process has beside it; torch's stub lacks
        its methods."""
        return _DIST.ProcessGroupGloo(self.store(name), rank, ranks, self.timeout)


class Wire(ABC):
    """One rank's end. A call raises RuntimeError where a rank that it cannot do without is gone."""

    lost: set[int]
    """Ranks of receivers that are gone; a sender goes on without them if it can."""

    def __init__(self, meeting: Meeting, device: torch.device) -> None:
        self.lost = set()
        self._meeting, self._device = meeting, device
        self._gloo = meeting.gloo("all", meeting.rank, meeting.ranks)
        several = meeting.senders > 1 and meeting.rank < meeting.senders
        self._senders = meeting.gloo("senders", meeting.rank, meeting.senders) if several else None

    @abstractmethod
    def send(self, data: Tensor) -> None:
        """A bucket of its own, to all receivers."""

    @abstractmethod
    def receive(self, owner: int, into: Tensor) -> None:
        """A bucket of an owner."""

    @abstractmethod
    def watch(self, owner: int, size: int) -> None:
        """Another owner sends a bucket of so many bytes."""

    def meet(self) -> None:
        """Until all senders are here."""
        if self._senders is not None:
            self._senders.barrier().wait()


class DirectWire(Wire):
    """Messages over gloo."""

    def send(self, data: Tensor) -> None:
        """To all receivers that are left."""
        works, data = [], streams.of(data.device).from_device(data)
        for rank in self._meeting.receivers:
            if rank not in self.lost:
                try:
                    works.append((rank, self._gloo.send([data], rank, _TAG)))
                except RuntimeError:  # its connection was closed before
                    self.lost.add(rank)
        for rank, work in works:
            try:
                work.wait()
            except RuntimeError:  # closed, or silent for longer than the patience
                self.lost.add(rank)

    def receive(self, owner: int, into: Tensor) -> None:
        """From its owner."""
        kind = streams.of(into.device)
        received = kind.for_device(into)
        self._gloo.recv([received], owner, _TAG).wait()
        if received is not into:
            kind.copy(into, received)
            kind.current(into.device).synchronize()

    def watch(self, owner: int, size: int) -> None:
        """Nothing is received here."""


class CollectiveWire(Wire):
    """Broadcasts of all ranks."""

    _nccl: Any = None
    _thrown: Tensor | None = None

    def send(self, data: Tensor) -> None:
        """To all ranks."""
        self._broadcast(data, self._meeting.rank)

    def receive(self, owner: int, into: Tensor) -> None:
        """From its owner."""
        self._broadcast(into, owner)

    def watch(self, owner: int, size: int) -> None:
        """Take part."""
        if self._thrown is None or self._thrown.numel() < size:
            self._thrown = torch.empty(size, dtype=torch.uint8, device=self._device)
        self._broadcast(self._thrown[:size], owner)

    def _broadcast(self, data: Tensor, owner: int) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = owner
        options.rootTensor = 0
        kind = streams.of(data.device)
        group = self._on_gpus() if kind.backend == "nccl" else self._gloo
        group.broadcast([data], options).wait()
        kind.current(data.device).synchronize()

    def _on_gpus(self) -> Any:
        """Made when it is first needed: where there is no GPU torch has none to make."""
        if self._nccl is None:
            meeting, options = self._meeting, dist.ProcessGroupNCCL.Options()
            options._timeout = meeting.timeout  # noqa: SLF001  as torch itself sets it
            store = meeting.store("nccl")
            self._nccl = dist.ProcessGroupNCCL(store, meeting.rank, meeting.ranks, options)
        return self._nccl


WIRES: Final[Mapping[str, type[Wire]]] = {"direct": DirectWire, "collective": CollectiveWire}


@cache
def _client(host: str, port: int) -> Any:
    return _DIST.TCPStore(host, port, is_master=False, wait_for_workers=False)


@cache
def hosted(host: str) -> Any:
    """The store of all epochs, which one of the senders holds."""
    return _DIST.TCPStore(host, 0, is_master=True, wait_for_workers=False)


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
        self._kind, self._device = streams.of(device), device
        self._stream = self._kind.new(device)
        """Of copies from the host, beside what computes."""
        self._free = self._kind.current(device).record_event()
        """From then on the buffer that is copied into is free."""

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
            self._free = self._kind.current(self._device).record_event()

    def meet(self) -> None:
        """Until all owners are here."""
        self._wire.meet()

    def _from_host(self, into: Tensor, bucket: WeightBucket) -> None:
        with self.record.span("host_copy", bucket):
            self._stream.wait_event(self._free)
            with self._kind.on(self._stream):
                self._kind.copy(into, self._host.part(bucket))
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
