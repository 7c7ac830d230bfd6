"""Which layers each chunk holds: balanced by time, or as the planner wrote them. The balanced split
is where the search for the best one begins (`twin.planning.split_search`).

The slowest stage sets the pace of a pipeline's steady state; a chunk longer than the others delays
its warm-up and cool-down. Where stages go round several chunks, they wait in each round for the
longest, so that it sets the pace. `balance` therefore seeks, each among the best of those before:

1. the least time of the slowest stage (all its chunks; embedding on the first, head on the last),
2. the least time of the slowest chunk; with several chunks per stage this comes first,
3. the most even layers per chunk (least sum of squares),
4. the most layers on late chunks (greatest sum of chunk index x layers), because early stages keep
   more activations alive.

Mirrored stages, as of DualPipe, hold each other's chunks and run both at once: two such chunks are
one stage here.

Several parts of a rank are busy beside each other (`Busy`). A stage or a chunk takes as long as its
busiest part. So a head whose kernels weigh much leaves its stage no fewer layers where the host
thread, which issues layers, is what a stage waits for.

Times are counted in whole nanoseconds, as in the engine, so that equal is equal. A layer moves only
where that helps: a head worth 0.3 layers leaves an even split even, since any other split would put
a whole layer more on some stage. Weights leave out much: an even
split wins where it takes at most `SLACK` longer, so that an embedding empties no stage.

Method. Models repeat one layer after a few others (dense layers before those with experts). Equal
layers are poured one by one into the place where the result is least, within the least time of the
slowest stage and chunk that has room for all (`_level`); that is exact, because the limits (of a
chunk within a stage) are nested and each cost is convex (Federgruen and Groenevelt 1986, "The
greedy procedure for resource allocation problems", Operations Research 34). The d layers
before them are tried out, in every way to put them on the first d + 1 chunks; more than
`MOST_LEADING` would be too many ways. Then the search is a descent: a layer passes from one chunk
to another as long as the sorted stage times, or else the sorted chunk times, get less. It ends
where no single pass helps, which need not be the best split (it was for 92 % of 3,000 random
mixtures of 6 to 8 layers on up to 6 chunks; the slowest stage was 27 % longer at worst).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import accumulate, pairwise, permutations
from operator import add, sub
from typing import TypeAlias, TypeVar

from twin.errors import Problem

T = TypeVar("T")

SLACK = 0.02
"""OURS: within it the more even split is the better one."""
MOST_LEADING = 4
"""Leading layers placed by trial: 70 ways at most; each costs under a millisecond on 64 chunks."""

_FIELD = "parallel.layers"

Busy: TypeAlias = tuple[float, ...]
"""Seconds in which each part of a rank is busy, the kernels first; as many parts in every layer."""
_Whole: TypeAlias = tuple[int, ...]
"""The same in nanoseconds."""


def job_of(
    layer_seconds: Sequence[Busy],
    embedding_seconds: Busy,
    head_seconds: Busy,
    stages: int,
    chunks_per_stage: int,
    *,
    mirrored: bool = False,
) -> Job:
    """What `balance` is asked, in nanoseconds."""
    chunks = stages * chunks_per_stage
    stage_of = [min(c, chunks - 1 - c) if mirrored else c % stages for c in range(chunks)]
    embedding, head, *layers = map(_whole, (embedding_seconds, head_seconds, *layer_seconds))
    times = [(max(1, kernels), *beside) for kernels, *beside in layers]
    fixed = [(0,) * len(embedding)] * chunks
    fixed[0] = embedding
    fixed[-1] = _added(fixed[-1], head)
    return Job(tuple(times), tuple(fixed), tuple(stage_of), chunks_per_stage > 1)


def split(layers_per_chunk: Sequence[int]) -> tuple[range, ...]:
    """The layers of each chunk, as 0-based positions in the model.

    >>> split((2, 0, 1))
    (range(0, 2), range(2, 2), range(2, 3))
    """
    return tuple(range(a, b) for a, b in pairwise(accumulate(layers_per_chunk, initial=0)))


def problems(
    layers_per_chunk: Sequence[int], layers: int, stages: int, chunks_per_stage: int
) -> list[Problem]:
    """What is wrong with a written split of a model's `layers`; each hint is the nearest fix."""
    chunks = stages * chunks_per_stage
    found: list[Problem] = []
    if len(layers_per_chunk) != chunks:
        message = (
            f"layers has {len(layers_per_chunk)} entries for {chunks} chunks"
            f" ({stages} stages x {chunks_per_stage})"
        )
        hint = f"write {chunks} entries, or leave layers out: the twin splits them"
        found.append(Problem("TW119", _FIELD, message, hint))
    for index, count in enumerate(layers_per_chunk):
        if count < 0:
            message = f"layers[{index}] is {count}"
            found.append(Problem("TW120", _FIELD, message, "use 0 for an empty chunk"))
    total = sum(layers_per_chunk)
    if not found and total != layers:
        message = f"layers adds up to {total}, and the model has {layers} layers"
        changes = _changes(layers_per_chunk, layers)
        found.append(Problem("TW121", _FIELD, message, f"for example {changes}"))
    return found


def _changes(counts: Sequence[int], layers: int) -> str:
    """The entries to change so that the counts add up: the smallest grow, the largest shrink."""
    missing = layers - sum(counts)
    if missing > 0:
        mended = _raised(counts, missing)
    else:
        mended = [-count for count in _raised([-count for count in counts], -missing)]
    changed = [
        f"layers[{index}] = {new}"
        for index, (old, new) in enumerate(zip(counts, mended, strict=True))
        if old != new
    ]
    return ", ".join(changed)


def _raised(counts: Sequence[int], amount: int) -> list[int]:
    """The counts after `amount` was added one by one, each to the first of the smallest.

    >>> _raised([5, 1, 1], 4)
    [5, 3, 3]
    """
    ordered = sorted(counts)
    places, total = 1, ordered[0] + amount
    # As many of the smallest as end on one level, but for what does not divide.
    while places < len(ordered) and ordered[places] <= total // places:
        total += ordered[places]
        places += 1
    level, rest = divmod(total, places)
    low = [index for index, count in enumerate(counts) if count <= level]
    raised = [max(count, level) for count in counts]
    for index in low[:rest]:
        raised[index] += 1
    return raised


@dataclass(frozen=True, slots=True)
class Job:
    """Times of each layer, times that each chunk has anyway, and the stage of each chunk."""

    times: tuple[_Whole, ...]
    fixed: tuple[_Whole, ...]
    stage_of: tuple[int, ...]
    loops: bool
    """Whether stages go round several chunks."""

    @property
    def stages(self) -> int:
        """How many there are."""
        return max(self.stage_of) + 1

    def balanced(self) -> tuple[int, ...]:
        """The best counts, or even ones that are as good."""
        chunks, leading = len(self.fixed), _leading(self.times)
        if leading > MOST_LEADING:
            found = _descend(self)
        else:
            placements = _placements(leading, min(leading + 1, chunks))
            found = min((_fill(self, placed) for placed in placements), key=self.worth)
        even = evenly(len(self.times), chunks)
        return next((one for one in even if self.as_good(one, found)), found)

    def chunk_times(self, counts: Sequence[int]) -> list[_Whole]:
        """Times of each chunk."""
        clock = list(accumulate(self.times, _added, initial=(0,) * len(self.fixed[0])))
        return [
            tuple(map(sub, _added(extra, clock[part.stop]), clock[part.start]))
            for part, extra in zip(split(counts), self.fixed, strict=True)
        ]

    def stage_times(self, chunk_times: Sequence[_Whole]) -> list[_Whole]:
        """Times of each stage."""
        own: list[_Whole] = [(0,) * len(self.fixed[0])] * self.stages
        for stage, time in zip(self.stage_of, chunk_times, strict=True):
            own[stage] = _added(own[stage], time)
        return own

    def ordered(self, of_stages: T, of_chunks: T) -> tuple[T, T]:
        """What is sought first and second."""
        return (of_chunks, of_stages) if self.loops else (of_stages, of_chunks)

    def slowest(self, counts: Sequence[int]) -> tuple[int, int]:
        """The times of the slowest stage and chunk."""
        chunk_times = self.chunk_times(counts)
        slowest = max(map(max, self.stage_times(chunk_times)))
        return self.ordered(slowest, max(map(max, chunk_times)))

    def worth(self, counts: Sequence[int]) -> tuple[int, ...]:
        """The objective of the module's list, smaller is better."""
        return (*self.slowest(counts), *_evenness(counts))

    def as_good(self, even: Sequence[int], other: Sequence[int]) -> bool:
        """Whether a split is more even than another and no slower, but for `SLACK`."""
        slowest = zip(self.slowest(even), self.slowest(other), strict=True)
        near = all(own <= (1 + SLACK) * least for own, least in slowest)
        return near and _evenness(even)[0] < _evenness(other)[0]


def _whole(seconds: Busy) -> _Whole:
    return tuple(round(one * 1e9) for one in seconds)


def _added(some: _Whole, more: _Whole) -> _Whole:
    return tuple(map(add, some, more))


def _room(level: int, base: _Whole, layer: _Whole) -> int:
    """How many such layers fit under a level beside what a place has anyway."""
    return min((level - own) // each for own, each in zip(base, layer, strict=True) if each)


def _evenness(counts: Sequence[int]) -> tuple[int, int]:
    squares = sum(count * count for count in counts)
    return squares, -sum(index * count for index, count in enumerate(counts))


def evenly(layers: int, chunks: int) -> Iterator[tuple[int, ...]]:
    """As many layers on every chunk, those left over on the last or the first ones."""
    each, more = divmod(layers, chunks)
    yield (*[each] * (chunks - more), *[each + 1] * more)
    yield (*[each + 1] * more, *[each] * (chunks - more))


def _leading(times: Sequence[_Whole]) -> int:
    """Layers before the run of equal layers that ends the model."""
    return next((i + 1 for i in reversed(range(len(times))) if times[i] != times[-1]), 0)


def _placements(layers: int, chunks: int) -> Iterator[tuple[int, ...]]:
    """Every way to put layers, in order, on chunks."""
    if chunks == 1:
        yield (layers,)
        return
    for first in range(layers + 1):
        for rest in _placements(layers - first, chunks - 1):
            yield (first, *rest)


def _fill(job: Job, placed: Sequence[int]) -> tuple[int, ...]:
    """The best counts whose leading layers are on the first chunks as `placed` says."""
    leading, layer = sum(placed), job.times[-1]
    chunks, stages = len(job.fixed), job.stages
    base = [*placed, *[0] * (chunks - len(placed))]
    chunk_base = replace(job, times=job.times[:leading]).chunk_times(base)
    stage_base = job.stage_times(chunk_base)
    # Layers stay in order: the run begins on the chunk that holds the last leading layer.
    first = max((index for index, count in enumerate(placed) if count), default=0)
    mates = [[c for c in range(first, chunks) if job.stage_of[c] == s] for s in range(stages)]
    amount = len(job.times) - leading
    of_stage, of_chunk = [amount] * stages, [amount] * chunks

    def limit_stages() -> None:
        # Most places hold alike, so that few are counted.
        held = [min(amount, sum(of_chunk[chunk] for chunk in own)) for own in mates]
        kinds = Counter(zip(held, stage_base, strict=True))

        def room(level: int) -> int:
            return sum(n * min(kind[0], _room(level, kind[1], layer)) for kind, n in kinds.items())

        slowest = _level(stage_base, layer, amount, room)
        of_stage[:] = [_room(slowest, base, layer) for base in stage_base]

    def limit_chunks() -> None:
        kinds = Counter(
            (of_stage[stage], tuple(sorted(chunk_base[chunk] for chunk in own)))
            for stage, own in enumerate(mates)
        )

        def room(level: int) -> int:
            held = {kind: sum([_room(level, base, layer) for base in kind[1]]) for kind in kinds}
            return sum(n * min(kind[0], held[kind]) for kind, n in kinds.items())

        slowest = _level(chunk_base, layer, amount, room)
        of_chunk[:] = [_room(slowest, base, layer) for base in chunk_base]

    for limit in job.ordered(limit_stages, limit_chunks):
        limit()
    # Even first, late among equals: both in one number, since index < chunks.
    heap = [(count * chunks - c, c) for c, count in enumerate(base) if c >= first]
    heapify(heap)
    while amount:
        cost, chunk = heappop(heap)
        if of_chunk[chunk] and of_stage[job.stage_of[chunk]]:
            base[chunk] += 1
            of_chunk[chunk] -= 1
            of_stage[job.stage_of[chunk]] -= 1
            amount -= 1
            heappush(heap, (cost + chunks, chunk))
    return tuple(base)


def _level(bases: Sequence[_Whole], layer: _Whole, amount: int, room: Callable[[int], int]) -> int:
    """The least time, of places that have these anyway, within which so many layers have room."""
    longest = max(map(max, bases))
    levels = range(longest, longest + amount * max(layer) + 1)
    return levels[bisect_left(levels, amount, key=room)]


def _descend(job: Job) -> tuple[int, ...]:
    """Counts that no pass of one layer from one chunk to another makes better."""

    def worth(counts: Sequence[int]) -> tuple[list[int], list[int], tuple[int, int]]:
        chunk_times = job.chunk_times(counts)
        of_stages = _slowest_first(job.stage_times(chunk_times))
        return *job.ordered(of_stages, _slowest_first(chunk_times)), _evenness(counts)

    kernels, *beside = (sum(part) // len(job.times) for part in zip(*job.times, strict=True))
    mean = (max(1, kernels), *beside)
    counts = _fill(replace(job, times=(mean,) * len(job.times)), (0,))
    best = worth(counts)
    while True:
        better = min(((worth(move), move) for move in _moves(counts)), default=(best, counts))
        if better[0] >= best:
            return counts
        best, counts = better


def _slowest_first(times: Sequence[_Whole]) -> list[int]:
    return sorted(map(max, times), reverse=True)


def _moves(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every way to pass one layer from one chunk to another; the layers between slide."""
    for giver, taker in permutations(range(len(counts)), 2):
        if counts[giver]:
            moved = list(counts)
            moved[giver] -= 1
            moved[taker] += 1
            yield tuple(moved)
