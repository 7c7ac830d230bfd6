"""Where batches of tasks are played: in this process, in worker processes of this machine, or on a
Dask or Ray cluster; one small interface for all.

On this machine every worker is a pool of its own (loky, of joblib), so that one that dies takes no
other with it: a pool of several is broken as a whole by the death of one. Clusters are asked
through their own clients, which tell of each lost task; joblib's backends for them do not (its Dask
backend waits forever for a task whose worker died).
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")

Batch: TypeAlias = tuple[tuple[int, T], ...]
"""Tasks that go out together, each with its index."""
_WATCH_SECONDS: Final = 0.5
"""How often a worker looks whether the process that started it is still there."""


@dataclass(frozen=True, slots=True)
class Died:
    """In place of a result: the worker died, or the function raised."""

    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """In place of a batch's results: its worker died."""

    reason: str


@dataclass(frozen=True, slots=True)
class Played(Generic[R]):
    """A batch's results, and the seconds that they took on the worker."""

    results: list[tuple[int, R | Died]]
    seconds: float


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """Who plays: so many processes of this machine, or a cluster."""

    jobs: int | None = None
    """None: as many as this process may use cores; 1: this process itself."""
    cluster: str | None = None
    """`dask://HOST:PORT` (also `tcp://`, `tls://`) or `ray://HOST:PORT`; None: this machine."""


class Lanes(ABC):
    """Where batches go and come back from, in any order."""

    @property
    @abstractmethod
    def places(self) -> int:
        """How many batches may be out at once."""

    @abstractmethod
    def send(self, number: int, function: Callable[[T], R], batch: Batch[T]) -> None:
        """Send a batch out; at most `places` are."""

    @abstractmethod
    def receive(self) -> tuple[int, Played[Any] | Lost]:
        """The next batch that is back, by its number. Waits for it."""

    @abstractmethod
    def close(self) -> None:
        """End every worker that was started for this, at once."""


def open_lanes(pool: PoolChoice) -> Lanes:
    """What the choice stands for. Raises `UsageError` where a cluster cannot be reached."""
    if pool.cluster is not None:
        from twin.explore.sweep.clusters import open_cluster  # noqa: PLC0415  few have one

        return open_cluster(pool.cluster)
    cores: int = pool.jobs or import_module("joblib").cpu_count()
    return _Here() if cores == 1 else _Processes(cores)


def play_batch(function: Callable[[T], R], batch: Batch[T], parent: int | None = None) -> Played[R]:
    """Play a batch, on its worker; `parent` is the process without which there is no need to."""
    if parent is not None:
        _end_with(parent)
    begin = time.perf_counter()
    results: list[tuple[int, R | Died]] = []
    for index, task in batch:
        try:
            results.append((index, function(task)))
        except Exception as error:  # noqa: BLE001  told where the result would be
            results.append((index, Died(f"{type(error).__name__}: {error}")))
    return Played(results, time.perf_counter() - begin)


class _Here(Lanes):
    """This process, one batch after the other."""

    def __init__(self) -> None:
        self._sent: tuple[int, Callable[[], Played[Any]]] | None = None

    @property
    def places(self) -> int:
        return 1

    def send(self, number: int, function: Callable[[T], R], batch: Batch[T]) -> None:
        self._sent = (number, lambda: play_batch(function, batch))

    def receive(self) -> tuple[int, Played[Any] | Lost]:
        assert self._sent is not None
        number, played = self._sent
        return number, played()

    def close(self) -> None:
        self._sent = None


class _Processes(Lanes):
    """Worker processes of this machine, each a pool of one that is started when it is needed."""

    def __init__(self, count: int) -> None:
        self._loky: Any = import_module("joblib.externals.loky")
        self._pools: list[Any] = [None] * count
        self._idle = list(range(count))
        self._back: SimpleQueue[tuple[int, int, Any]] = SimpleQueue()

    @property
    def places(self) -> int:
        return len(self._pools)

    def send(self, number: int, function: Callable[[T], R], batch: Batch[T]) -> None:
        lane = self._idle.pop()
        if self._pools[lane] is None:
            self._pools[lane] = self._loky.ProcessPoolExecutor(1, initializer=_ignore_interrupts)
        future = self._pools[lane].submit(play_batch, function, batch, os.getpid())

        def back(done: Any) -> None:
            self._back.put((number, lane, done))

        future.add_done_callback(back)

    def receive(self) -> tuple[int, Played[Any] | Lost]:
        number, lane, future = self._back.get()
        self._idle.append(lane)
        error = future.exception()
        if error is None:
            return number, future.result()
        self._pools[lane].shutdown(wait=False, kill_workers=True)
        self._pools[lane] = None
        return number, Lost(_cause(error))

    def close(self) -> None:
        for pool in self._pools:
            if pool is not None:
                pool.shutdown(wait=False, kill_workers=True)


def _cause(error: BaseException) -> str:
    """Why a worker of this machine is gone."""
    codes = re.search(r"exit codes of the workers are \{(.*?)\}", str(error))
    if codes is not None:
        return f"its worker process died, with exit code {codes[1]}"
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}"


def _ignore_interrupts() -> None:
    """Ctrl-C reaches every process of a terminal; the one that the user started ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


_watching = threading.Event()


def _end_with(parent: int) -> None:
    """End this worker soon after its parent, even one that was killed without a chance to say
    so."""
    if _watching.is_set() or not hasattr(os, "getppid"):
        return
    _watching.set()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
