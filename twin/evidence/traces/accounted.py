"""Where a step of a traced rank went: every nanosecond one cause, in the twin's words.

While any kernel of passes runs it is `compute`, of the optimizer `optimizer`. While only
communication or copies run, the step waits for them, and until the last rank of their group has
come it is `bubble`, as far as the traces of other ranks tell. While nothing runs, the step waits
for the `host` until the next kernel has been launched; what is left then is `other`, as are kernels
that no pattern names.

Limits: a kernel that runs slower beside another counts whole as `compute`. A message's kernel waits
for its sender, so without that rank's trace a pipeline's bubble is `exposed_pipeline`. Launches
that were not recorded leave idle time to `other`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from twin.engine.trace import CAUSES
from twin.evidence.traces.kernels import UNKNOWN, cause_of, kind_of
from twin.evidence.traces.rank import HOST, NEVER, Ints, RankTrace

FIRST: Final = (
    "compute", "optimizer", "other", "exposed_expert", "exposed_tensor", "exposed_context",
    "exposed_data", "exposed_pipeline", "exposed_offload",
)  # fmt: skip
"""Of what runs at once, the first of these is the cause."""
LAUNCH_NS: Final = 10_000
"""From the end of a launch to its kernel, on an idle device: OURS, twice what an H100 takes."""


@dataclass(frozen=True, slots=True)
class KernelGroup:
    """Kernels of one kind, in forward or backward passes; nanoseconds."""

    kind: str
    backward: bool
    count: int
    busy_ns: int


@dataclass(frozen=True, slots=True)
class Accounted:
    """One step of one rank."""

    step_ns: int
    row: dict[str, int]
    """Nanoseconds by cause; they add up to the step."""
    kernels: tuple[KernelGroup, ...]
    annotations: dict[str, tuple[int, int]]
    """Of each the number of times that it occurs, and the nanoseconds of its kernels."""
    unknown_ns: int
    """Of kernels that no pattern names."""
    passes: tuple[int, int]
    """Forward and backward layers: how often attention ran."""

    @property
    def busy_ns(self) -> int:
        """Of all kernels, those at once counted each."""
        return sum(one.busy_ns for one in self.kernels)


def accounted(
    rank: RankTrace,
    step: int | None = None,
    sizes: Sequence[tuple[int, str]] = (),
    begun: Ints | None = None,
) -> Accounted:
    """Where a step went; all of the trace for None. `begun`: when the last rank of its group had
    come to each collective, where that is known."""
    rows = np.flatnonzero(rank.of_step(step))
    kinds = [kind_of(name) for name in rank.names]
    causes = _causes(rank, rows, kinds, sizes)
    start, end = rank.start[rows], rank.end[rows]
    first, last = _window(rank, step, rows)
    gone = start if begun is None else np.maximum(start, begun[rows])
    row: dict[str, int] = dict.fromkeys(CAUSES, 0)
    for begin, until, cause in _stretches(causes, start, gone, end, first, last):
        row[cause] += until - begin
    _split_idle(rank, rows, row, first, last)
    return Accounted(
        step_ns=last - first,
        row=row,
        kernels=_groups(rank, rows, kinds),
        annotations=_annotations(rank, rows),
        unknown_ns=sum(
            int(rank.end[at] - rank.start[at])
            for at in rows.tolist()
            if kinds[int(rank.name[at])] == UNKNOWN
        ),
        passes=_passes(rank, rows, kinds),
    )


def _window(rank: RankTrace, step: int | None, rows: Ints) -> tuple[int, int]:
    """Start and end of a step on the device: up to the first kernel of the next one."""
    if not len(rows):
        return 0, 0
    if rank.device == HOST and step is not None:
        return rank.steps[step]
    first, last = int(rank.start[rows].min()), int(rank.end[rows].max())
    later = [number for number in rank.steps if step is not None and number > step]
    if later:
        after = rank.start[rank.of_step(min(later))]
        last = int(after.min()) if len(after) else last
    return first, max(first, last)


def _causes(
    rank: RankTrace, rows: Ints, kinds: Sequence[str], sizes: Sequence[tuple[int, str]]
) -> list[int]:
    """Places in `FIRST` of what the step waits for while each runs alone."""
    known: dict[tuple[int, int], int] = {}
    found: list[int] = []
    pairs: list[tuple[int, int]] = np.stack((rank.name[rows], rank.says[rows]), 1).tolist()
    for name, says in pairs:
        if (name, says) not in known:
            cause = cause_of(kinds[name], rank.names[name], rank.told[says], sizes)
            known[name, says] = FIRST.index(cause)
        found.append(known[name, says])
    return found


IDLE: Final = "bubble"


def _stretches(
    causes: Sequence[int], start: Ints, gone: Ints, end: Ints, first: int, last: int
) -> list[tuple[int, int, str]]:
    """Stretches between two changes, each with its cause; `IDLE` while a collective waits for other
    ranks. Idle time is in none."""
    own = np.array(causes, np.int64)
    waits = len(FIRST)
    late = gone > start
    kind = np.concatenate([own, np.full(int(late.sum()), waits, np.int64)])
    begins = np.concatenate([np.minimum(gone, end), start[late]])
    ends = np.concatenate([end, np.minimum(gone, end)[late]])
    times = np.unique(np.clip(np.concatenate([begins, ends, [first, last]]), first, last))
    running = np.zeros((waits + 1, len(times)), np.int64)
    for which in np.unique(kind).tolist():
        mine = kind == which
        np.add.at(running[which], np.searchsorted(times, np.clip(begins[mine], first, last)), 1)
        np.add.at(running[which], np.searchsorted(times, np.clip(ends[mine], first, last)), -1)
    busy = np.cumsum(running, axis=1) > 0
    chosen = np.where(busy.any(axis=0), busy.argmax(axis=0), -1)
    named = (*FIRST, IDLE)
    return [
        (int(times[at]), int(times[at + 1]), named[int(chosen[at])])
        for at in range(len(times) - 1)
        if chosen[at] >= 0
    ]


def _split_idle(rank: RankTrace, rows: Ints, row: dict[str, int], first: int, last: int) -> None:
    """Give the time in which nothing runs to the host, as far as the next kernel had not been
    launched, else to `other`."""
    start, end = rank.start[rows], rank.end[rows]
    before = np.maximum.accumulate(np.concatenate([[first], end[:-1]])) if len(rows) else end
    idle = np.flatnonzero(start > before)
    for at in idle.tolist():
        gap, issued = int(start[at] - before[at]), int(rank.issued[rows[at]])
        late = issued + LAUNCH_NS - int(before[at]) if issued != NEVER else 0
        host = min(gap, max(0, late))
        row["host"] += host
        row["other"] += gap - host
    row["other"] += last - first - sum(row.values())


def _groups(rank: RankTrace, rows: Ints, kinds: Sequence[str]) -> tuple[KernelGroup, ...]:
    """Kernels by kind and direction, those that take longest first."""
    count, busy = defaultdict[tuple[str, bool], int](int), defaultdict[tuple[str, bool], int](int)
    length: list[int] = (rank.end - rank.start)[rows].tolist()
    names: list[int] = rank.name[rows].tolist()
    back: list[bool] = rank.backward[rows].tolist()
    for name, behind, took in zip(names, back, length, strict=True):
        key = kinds[name], behind
        count[key] += 1
        busy[key] += took
    found = [KernelGroup(*key, count[key], busy[key]) for key in busy]
    return tuple(sorted(found, key=lambda one: -one.busy_ns))


def _annotations(rank: RankTrace, rows: Ints) -> dict[str, tuple[int, int]]:
    """The trainer's own names for what it launched; empty for what it left unnamed."""
    times, held = defaultdict[str, int](int), defaultdict[str, set[int]](set)
    length: list[int] = (rank.end - rank.start)[rows].tolist()
    notes: list[int] = rank.annotation[rows].tolist()
    for at, took in zip(notes, length, strict=True):
        name = rank.annotations[at] if at >= 0 else ""
        times[name] += took
        held[name].add(at)
    return {name: (len(held[name]), took) for name, took in times.items()}


def _passes(rank: RankTrace, rows: Ints, kinds: Sequence[str]) -> tuple[int, int]:
    """Layers forward and backward: calls of attention, of which backward ones take several kernels,
    and one that takes most of the time."""
    names, back = rank.name[rows], rank.backward[rows]
    counts: list[int] = []
    for behind in (False, True):
        mine = [n for n in np.unique(names[back == behind]).tolist() if kinds[n] == "attention"]
        length = (rank.end - rank.start)[rows]
        took = {n: int(length[(names == n) & (back == behind)].sum()) for n in mine}
        main = max(took, key=lambda n: took[n], default=None)
        counts.append(0 if main is None else int(((names == main) & (back == behind)).sum()))
    return counts[0], counts[1]
