"""Work in the background: a queue of jobs per kind of work, and processes that do it.

Simulating is pure Python, and a thread of the app's own would hold up every visitor; so jobs go to
a `Worker`. `python -m twin.ui.background` reads calls from standard input and answers on standard
output, both pickled: `(function, arguments)` in, `("share", float)` any number of times and
`("result", value)` out. It ends when the app does."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import LifoQueue
from threading import Lock, Thread
from time import monotonic
from typing import Any, BinaryIO, Final, Generic, TypeVar

ResultT = TypeVar("ResultT")
Note = Callable[[float], None]
"""Takes the share of the work that is done, 0 to 1."""

_NICENESS: Final = 5
"""Pages come first."""
_TOLD: Final = 0.1
"""The share that is done when the time left is first said: the start is no measure of the rest."""
IDLE: Final = 19
"""The niceness of work that nobody waits for."""
_GROUP: Final = Path("/proc/self/autogroup")
"""Where Linux keeps the niceness of a session of processes against others; that of a process counts
only within its session."""
_NOTED: Final = 0.01
"""Shares between two reports of progress."""


KEPT: Final = 16
"""Results kept per kind of work; the answer to a large run is about 10 MB."""


@dataclass(slots=True)
class Progress:
    """The share of a work that is done; written by one thread, read by others."""

    share: float = 0.0
    begun: float | None = None
    """When it began, of `time.monotonic`; None: it waits."""

    def note(self, share: float) -> None:
        """Remember how far the work is."""
        self.share = share

    @property
    def seconds(self) -> float:
        """For how long it is at work."""
        return 0.0 if self.begun is None else monotonic() - self.begun

    @property
    def left(self) -> float | None:
        """Seconds until it is done, if it goes on as it began; None: too early to say."""
        return self.seconds * (1 / self.share - 1) if self.share >= _TOLD else None


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why there is no result: a visitor stopped the work at this share. After `again` it begins
    anew when it is next asked for."""

    share: float
    again: Callable[[], None] = field(repr=False, compare=False)

    @property
    def percent(self) -> str:
        """The share in words: `40 %`."""
        return f"{100 * self.share:.0f} %"


def _go_on() -> None:
    """Nothing: what was made without a queue cannot be stopped."""


@dataclass(frozen=True, slots=True)
class Pending(Generic[ResultT]):
    """A result in the making, or made. `stop` makes it `Stopped` and ends the process that works
    on it."""

    future: Future[ResultT | Stopped] = field(default_factory=Future[ResultT | Stopped])
    progress: Progress = field(default_factory=Progress)
    stop: Callable[[], None] = _go_on

    def within(self, seconds: float) -> ResultT | Stopped | None:
        """The result, or None where it takes longer than that."""
        done, _ = wait([self.future], seconds)
        return self.future.result() if done else None


class StoppedError(Exception):
    """Nobody wants the work any more."""


class WorkerDiedError(Exception):
    """The process ended before it had answered; the message says how."""


@dataclass(slots=True)
class Worker:
    """One such process, started when it is first needed. Not for several threads at once."""

    niceness: int = _NICENESS
    process: subprocess.Popen[bytes] | None = None
    has_answered: bool = False
    """Whether the process is one that has loaded what it needs."""

    def perform(
        self, function: Callable[..., ResultT], arguments: tuple[Any, ...], note: Note
    ) -> ResultT:
        """What `function(*arguments, note)` returns over there. It is a function of a module.

        Raises `WorkerDiedError` where the process ends, as when memory runs out.
        """
        process = self._started()
        note(0.0)  # raises where the work was stopped before there was a process to end
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((function, arguments), process.stdin)
            process.stdin.flush()
            while True:
                what, value = pickle.load(process.stdout)
                if what == "result":
                    self.has_answered = True
                    return value
                note(value)
        except (EOFError, OSError, pickle.UnpicklingError):
            self.process = None
            raise WorkerDiedError(
                f"the process that works for the app ended with {process.wait(10)}"
            ) from None

    def _started(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            self.has_answered = False
            alone = self.niceness == IDLE
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(self.niceness)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=alone,
                process_group=None if alone else 0,
            )
            atexit.register(_end, self.process)
        return self.process

    def end(self) -> None:
        """End the process; the next work starts another."""
        if self.process is not None:
            _end(self.process)


@dataclass(slots=True)
class Jobs:
    """One kind of work, with the process that does it. Work must not raise: what can go wrong is
    part of its result."""

    name: str
    process: Worker = field(default_factory=Worker)
    queue: LifoQueue[Callable[[], None]] = field(default_factory=LifoQueue[Callable[[], None]])
    results: OrderedDict[Hashable, Pending[Any]] = field(
        default_factory=OrderedDict[Hashable, Pending[Any]]
    )
    lock: Lock = field(default_factory=Lock)
    thread: Thread | None = None
    now: Pending[Any] | None = None
    """What is being worked on."""

    def ask(self, key: Hashable, work: Callable[[Note], ResultT]) -> Pending[ResultT]:
        """The result under a key: kept from before, or in the making."""
        with self.lock:
            if key not in self.results:
                pending: Pending[ResultT] = Pending(stop=lambda: self._stop(key))
                self.results[key] = pending
                self.queue.put(lambda: self._perform(work, pending))
                self._start()
            self.results.move_to_end(key)
            while len(self.results) > KEPT:
                _, dropped = self.results.popitem(last=False)
                dropped.future.cancel()
            return self.results[key]

    def known(self, key: Hashable) -> Pending[Any] | None:
        """The result under a key, where it was asked for before."""
        with self.lock:
            return self.results.get(key)

    def is_next(self, pending: Pending[Any]) -> bool:
        """Whether a process that is ready works on this, or has nothing to do before it."""
        with self.lock:
            return self.process.has_answered and (self.now is None or self.now is pending)

    def _start(self) -> None:
        if self.thread is None:
            self.thread = Thread(target=self._work, name=self.name, daemon=True)
            self.thread.start()

    def _work(self) -> None:
        while True:
            self.queue.get()()

    def _perform(self, work: Callable[[Note], ResultT], pending: Pending[ResultT]) -> None:
        with self.lock:
            if pending.future.done():  # dropped, or stopped before its turn
                return
            pending.future.set_running_or_notify_cancel()
            pending.progress.begun = monotonic()
            self.now = pending

        def note(share: float) -> None:
            if pending.future.done():
                raise StoppedError
            pending.progress.note(share)

        try:
            end = partial(pending.future.set_result, work(note))
        except BaseException as error:  # noqa: BLE001  the thread must live on; the page says it
            end = partial(pending.future.set_exception, error)
        with self.lock:
            self.now = None
            if not pending.future.done():  # else it was stopped meanwhile
                end()

    def _stop(self, key: Hashable) -> None:
        with self.lock:
            pending = self.results.get(key)
            if pending is None or pending.future.done():
                return
            again = partial(self._forget, key, pending)
            pending.future.set_result(Stopped(pending.progress.share, again))
            if self.now is pending:
                self.process.end()

    def _forget(self, key: Hashable, stopped: Pending[Any]) -> None:
        with self.lock:
            if self.results.get(key) is stopped:
                del self.results[key]


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer calls until there are no more."""
    while True:
        try:
            function, arguments = pickle.load(source)
        except EOFError:
            return
        result = function(*arguments, _Reporter(sink).note)
        _send(sink, ("result", result))


@dataclass(slots=True)
class _Reporter:
    """Says how far a work is, but not every time."""

    sink: BinaryIO
    said: float = -1.0

    def note(self, share: float) -> None:
        """Report the share, if there is news."""
        if share - self.said >= _NOTED:
            self.said = share
            _send(self.sink, ("share", share))


def _send(sink: BinaryIO, message: tuple[str, Any]) -> None:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    try:
        sink.write(data)
        sink.flush()
    except BrokenPipeError:  # the app is gone, and nobody waits for the rest
        os._exit(0)


def _yield_to_pages(niceness: int) -> None:
    """Let this process come after those of the app; with a session of its own, after all others."""
    os.nice(niceness)
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):  # another system
            _GROUP.write_text(str(niceness))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a worker and what it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


if __name__ == "__main__":
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # What is printed must not come between the answers.
    _yield_to_pages(int(sys.argv[1]))
    serve(sys.stdin.buffer, answers)
