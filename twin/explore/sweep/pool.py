"""Play many tasks on the cores of this machine, or on a cluster, and lose nothing but the task that
kills its worker.

A task goes out in a batch with others that are as quick, so that a few milliseconds of work do not
drown in the sending. A batch whose worker dies is taken apart: its tasks go out one by one, and the
one whose worker dies again is tried once more at the end, with nothing else at work, since it may
have wanted the memory that others held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, TypeVar

from twin.explore.sweep.lanes import Batch, Died, Lanes, Lost, PoolChoice, open_lanes

__all__ = ["Died", "Lanes", "PoolChoice", "open_lanes", "play"]

T = TypeVar("T")
R = TypeVar("R")

BATCH_SECONDS: Final = 0.3
"""What a batch should take: a hundred times what sending one costs on a local pool (some
milliseconds), and short enough for a progress bar."""
MOST_IN_A_BATCH: Final = 256
"""Tasks that go out together at most."""
_Told = Callable[[int, int], None]


def play(
    function: Callable[[T], R],
    tasks: Iterable[T],
    *,
    pool: PoolChoice | Lanes,
    progress: _Told | None = None,
) -> Generator[tuple[int, R | Died]]:
    """What `function` says of each task, as (index of the task, result), in the order in which they
    end; `Died` for a task whose worker died twice, or that raised.

    Function, tasks and results must be picklable, and the function importable by the workers.
    Tasks are taken from the iterable as they are needed; closing the generator ends the workers at
    once, but for lanes that were opened before, which stay open for the next tasks. `progress` is
    told how many have ended and how many of these died. Raises `UsageError` where a cluster cannot
    be reached.
    """
    course = _Course[T](iter(enumerate(tasks)), len(tasks) if isinstance(tasks, Sized) else None)
    ended = died = 0
    lanes = open_lanes(pool) if isinstance(pool, PoolChoice) else pool
    try:
        for index, result in _answers(lanes, function, course):
            ended, died = ended + 1, died + isinstance(result, Died)
            if progress is not None:
                progress(ended, died)
            yield index, result
    finally:
        if lanes is not pool:
            lanes.close()


@dataclass(slots=True)
class _Course(Generic[T]):
    """What is still to go out: fresh tasks, then those of lost batches one by one, then those that
    were lost alone."""

    fresh: Iterator[tuple[int, T]]
    left: int | None
    """Fresh tasks, where that is known."""
    suspects: deque[tuple[int, T]] = field(default_factory=deque[tuple[int, T]])
    last: deque[tuple[int, T]] = field(default_factory=deque[tuple[int, T]])
    seconds: float = 0.0
    """That all tasks which came back took on their workers."""
    back: int = 0

    def next(self, lanes: int) -> Batch[T]:
        """The next batch; empty where only tasks that were lost alone are left."""
        batch = tuple(islice(self.fresh, self._size(lanes)))
        if self.left is not None:
            self.left -= len(batch)
        if not batch and self.suspects:
            return (self.suspects.popleft(),)
        return batch

    def lose(self, batch: Batch[T]) -> None:
        """Take back a batch whose worker died."""
        (self.last if len(batch) == 1 else self.suspects).extend(batch)

    def note(self, tasks: int, seconds: float) -> None:
        """Learn how long tasks take."""
        self.back, self.seconds = self.back + tasks, self.seconds + seconds

    def _size(self, lanes: int) -> int:
        """Tasks of a batch: as many as take `BATCH_SECONDS`, but so few that every lane has work
        until the end."""
        if not self.back:
            return 1
        each = max(self.seconds / self.back, 1e-6)
        fair = MOST_IN_A_BATCH if self.left is None else -(-self.left // (2 * lanes))
        return max(1, min(int(BATCH_SECONDS / each), fair, MOST_IN_A_BATCH))


def _answers(
    lanes: Lanes, function: Callable[[T], R], course: _Course[T]
) -> Iterator[tuple[int, R | Died]]:
    """Every task's result."""
    yield from _together(lanes, function, course)
    while course.last:
        index, task = course.last.popleft()
        lanes.send(0, function, ((index, task),))
        found = lanes.receive()[1]
        yield from [(index, Died(found.reason))] if isinstance(found, Lost) else found.results


def _together(
    lanes: Lanes, function: Callable[[T], R], course: _Course[T]
) -> Iterator[tuple[int, R | Died]]:
    """The results of all but tasks that were lost alone, which stay in `course.last`."""
    out: dict[int, Batch[T]] = {}
    number = 0
    while True:
        while len(out) < lanes.places and (batch := course.next(lanes.places)):
            out[number] = batch
            lanes.send(number, function, batch)
            number += 1
        if not out:
            return
        back, found = lanes.receive()
        batch = out.pop(back)
        if isinstance(found, Lost):
            course.lose(batch)
        else:
            course.note(len(batch), found.seconds)
            yield from found.results
