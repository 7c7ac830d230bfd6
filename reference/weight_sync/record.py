"""What each process did when, in nanoseconds of the machine's clock, and what that adds up to.

Stages have the names of `twin.kinds.weight_update.types.Stage`; `keep` is ours: out of the
trainer's model into host memory, which comes before an update.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from time import time_ns
from typing import Final, Literal, get_args

from reference.weight_sync.buckets import WeightBucket

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
