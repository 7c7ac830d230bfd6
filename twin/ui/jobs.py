"""Long work, away from the page: one thread per kind of work, the newest question first, results
kept for all sessions, and never more of them than `KEPT`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from queue import LifoQueue
from threading import Lock, Thread
from typing import Any, Final, Generic, TypeVar

from twin.ui.worker import Note

KEPT: Final = 16
"""Results kept per kind of work; the answer to a large run is about 10 MB."""

ResultT = TypeVar("ResultT")


@dataclass(slots=True)
class Progress:
    """The share of a work that is done; written by one thread, read by others."""

    share: float = 0.0

    def note(self, share: float) -> None:
        """Remember how far the work is."""
        self.share = share


@dataclass(frozen=True, slots=True)
class Pending(Generic[ResultT]):
    """A result in the making, or made."""

    future: Future[ResultT] = field(default_factory=Future[ResultT])
    progress: Progress = field(default_factory=Progress)

    def within(self, seconds: float) -> ResultT | None:
        """The result, or None where it takes longer than that."""
        done, _ = wait([self.future], seconds)
        return self.future.result() if done else None


@dataclass(slots=True)
class Jobs:
    """One kind of work. Work must not raise: what can go wrong is part of its result."""

    name: str
    queue: LifoQueue[Callable[[], None]] = field(default_factory=LifoQueue[Callable[[], None]])
    shelf: OrderedDict[Hashable, Pending[Any]] = field(
        default_factory=OrderedDict[Hashable, Pending[Any]]
    )
    lock: Lock = field(default_factory=Lock)
    worker: Thread | None = None

    def ask(self, key: Hashable, work: Callable[[Note], ResultT]) -> Pending[ResultT]:
        """The result under a key: kept from before, or in the making."""
        with self.lock:
            if key not in self.shelf:
                pending: Pending[ResultT] = Pending()
                self.shelf[key] = pending
                self.queue.put(lambda: _perform(work, pending))
                self._start()
            self.shelf.move_to_end(key)
            while len(self.shelf) > KEPT:
                _, dropped = self.shelf.popitem(last=False)
                dropped.future.cancel()
            return self.shelf[key]

    def _start(self) -> None:
        if self.worker is None:
            self.worker = Thread(target=self._work, name=self.name, daemon=True)
            self.worker.start()

    def _work(self) -> None:
        while True:
            self.queue.get()()


def _perform(work: Callable[[Note], ResultT], pending: Pending[ResultT]) -> None:
    if not pending.future.set_running_or_notify_cancel():
        return
    try:
        pending.future.set_result(work(pending.progress.note))
    except BaseException as error:  # noqa: BLE001  the thread must live on; the page says it
        pending.future.set_exception(error)
