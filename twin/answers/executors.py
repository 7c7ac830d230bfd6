"""Many tasks on the cores of this machine, or on a Dask or Ray cluster: `play` answers each once,
and loses nothing but the task that kills its worker.

Tasks are sent in batches of `BATCH_SECONDS`, so that milliseconds of work do not drown in the
sending. A batch whose worker dies is taken apart: its tasks are sent one by one. The one whose
worker dies again is tried once more at the end, with nothing else running, since it may have needed
the memory that others held.

Every executor gives `concurrent.futures.Future`s. On this machine each worker is a pool of one
process (loky, of joblib): the death of one process breaks a whole pool. Clusters are asked through
their own clients: joblib's Dask backend waits forever for a task whose worker died.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import Any, Final, Generic, TypeAlias, TypeVar

from twin.answers.run_store import source_digest
from twin.errors import Problem, UsageError

T = TypeVar("T")
R = TypeVar("R")

Batch: TypeAlias = tuple[tuple[int, T], ...]
"""Tasks that are sent together, each with its index."""
BATCH_SECONDS: Final = 0.3
"""Duration of a batch: a hundred times what sending one costs on this machine (milliseconds), and
short enough for a progress bar."""
MOST_IN_A_BATCH: Final = 256
_LEAK: Final = "_MAX_MEMORY_LEAK_SIZE"
KEPT_BYTES: Final = 2e9
"""OURS: by which a worker may grow: several times what the caches of a search hold."""
_WATCH_SECONDS: Final = 0.5
"""How often a worker checks that its parent process is alive."""
_LOOK_SECONDS: Final = 2.0
"""How often a Dask cluster is asked how many workers it has."""
_CONNECT_SECONDS: Final = 15
"""How long a Dask scheduler, and its first worker, may take to answer."""
_PATIENCE_SECONDS: Final = 60
"""How long a cluster may be without any worker before the tasks are given up."""
_AHEAD: Final = 2
"""Batches per thread of a Dask worker, so that the next one is there when one ends."""
_DASK: Final = ("dask", "tcp", "tls")


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """Which workers: processes of this machine, or a cluster."""

    jobs: int | None = None
    """Processes; None: as many as this process may use cores; 1: this process itself."""
    cluster: str | None = None
    """`dask://HOST:PORT` (also `tcp://`, `tls://`) or `ray://HOST:PORT`; None: this machine."""

    @property
    def is_here(self) -> bool:
        """Whether workers are processes of this machine, which share its disk."""
        return self.cluster is None


@dataclass(frozen=True, slots=True)
class Died:
    """In place of a result: the worker died, or the function raised."""

    reason: str


@dataclass(frozen=True, slots=True)
class FinishedBatch(Generic[R]):
    """A batch's results, and the seconds that they took on the worker."""

    results: list[tuple[int, R | Died]]
    seconds: float


class Executor(ABC):
    """Workers that batches are sent to."""

    is_here: bool = False
    """Whether they are processes of this machine, which share its disk."""

    @property
    @abstractmethod
    def places(self) -> int:
        """How many batches may be under way at once."""

    @abstractmethod
    def submit(self, function: Callable[[T], R], batch: Batch[T]) -> Future[FinishedBatch[R]]:
        """Send a batch; at most `places` are under way. The future fails if the worker dies."""

    def begin(self, function: Callable[[Any], Any]) -> None:  # noqa: B027  others have begun
        """Let workers begin and import a function, before there are tasks for it."""

    def check(self) -> None:  # noqa: B027  only Dask can tell
        """Raise `UsageError` where the workers are gone for good."""

    @abstractmethod
    def close(self) -> None:
        """End every worker that was started for this, at once."""


def open_executor(pool: PoolChoice) -> Executor:
    """The workers of a choice. Raises `UsageError` TW401 where a cluster cannot be reached."""
    if pool.cluster is not None:
        check_cluster(pool.cluster)
        return (_Ray if pool.cluster.startswith("ray://") else _Dask)(pool.cluster)
    cores: int = pool.jobs or import_module("joblib").cpu_count()
    return _ThisProcess() if cores == 1 else _Processes(cores)


def play(
    function: Callable[[T], R],
    tasks: Iterable[T],
    *,
    pool: PoolChoice | Executor,
    progress: Callable[[int, int], None] | None = None,
) -> Generator[tuple[int, R | Died]]:
    """The results of `function`, as (index of the task, result), in the order in which they end;
    `Died` for a task whose worker died twice, or that raised.

    Function, tasks and results must be picklable, and the function importable by the workers.
    Tasks are taken from the iterable as they are needed. Closing the generator ends the workers at
    once, but not those of an executor that was opened before. `progress` gets the numbers of tasks
    that have ended and that died. Raises `UsageError` where a cluster cannot be reached.
    """
    queue = _Queue[T](iter(enumerate(tasks)), len(tasks) if isinstance(tasks, Sized) else None)
    ended = died = 0
    executor = open_executor(pool) if isinstance(pool, PoolChoice) else pool
    try:
        for index, result in _results(executor, function, queue):
            ended, died = ended + 1, died + isinstance(result, Died)
            if progress is not None:
                progress(ended, died)
            yield index, result
    finally:
        if executor is not pool:
            executor.close()


@dataclass(slots=True)
class _Queue(Generic[T]):
    """Tasks to send: fresh ones, then those of lost batches one by one, then those that were lost
    alone."""

    fresh: Iterator[tuple[int, T]]
    left: int | None
    """Fresh tasks, where their number is known."""
    suspects: deque[tuple[int, T]] = field(default_factory=deque[tuple[int, T]])
    last: deque[tuple[int, T]] = field(default_factory=deque[tuple[int, T]])
    seconds: float = 0.0
    """That all finished tasks took on their workers."""
    finished: int = 0

    def next(self, places: int) -> Batch[T]:
        """The next batch; empty where only tasks that were lost alone are left."""
        batch = tuple(islice(self.fresh, self._size(places)))
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
        self.finished, self.seconds = self.finished + tasks, self.seconds + seconds

    def _size(self, places: int) -> int:
        """Tasks of a batch: as many as take `BATCH_SECONDS`, but so few that every worker has work
        until the end."""
        if not self.finished:
            return 1
        each = max(self.seconds / self.finished, 1e-6)
        fair = MOST_IN_A_BATCH if self.left is None else -(-self.left // (2 * places))
        return max(1, min(int(BATCH_SECONDS / each), fair, MOST_IN_A_BATCH))


def _results(
    executor: Executor, function: Callable[[T], R], queue: _Queue[T]
) -> Iterator[tuple[int, R | Died]]:
    """Every task's result."""
    under_way: dict[Future[FinishedBatch[R]], Batch[T]] = {}
    while True:
        while len(under_way) < executor.places and (batch := queue.next(executor.places)):
            under_way[executor.submit(function, batch)] = batch
        if not under_way:
            break
        for future in wait(under_way, _LOOK_SECONDS, FIRST_COMPLETED).done:
            batch = under_way.pop(future)
            if _reason(future) is None:
                queue.note(len(batch), future.result().seconds)
                yield from future.result().results
            else:
                queue.lose(batch)
        executor.check()
    for index, task in queue.last:
        future = executor.submit(function, ((index, task),))
        while not wait([future], _LOOK_SECONDS).done:
            executor.check()
        reason = _reason(future)
        yield from future.result().results if reason is None else [(index, Died(reason))]


def _reason(future: Future[Any]) -> str | None:
    """Why a batch was lost; None where it was not."""
    if future.cancelled():
        return "the cluster cancelled it"
    error = future.exception()
    if error is None:
        return None
    first = str(error).strip().partition("\n")[0]
    codes = re.search(r"exit codes of the workers are \{(.*?)\}", str(error))
    if codes is not None:
        return f"its worker process died, with exit code {codes[1]}"
    if type(error).__module__.partition(".")[0] in ("distributed", "ray"):
        return f"its worker on the cluster died: {first}"
    return f"{type(error).__name__}: {first}"


def play_batch(
    function: Callable[[T], R], batch: Batch[T], parent: int | None = None
) -> FinishedBatch[R]:
    """Play a batch, on its worker, which ends with the process `parent`."""
    if parent is not None:
        _end_with(parent)
    begin = time.perf_counter()
    results: list[tuple[int, R | Died]] = []
    for index, task in batch:
        try:
            results.append((index, function(task)))
        except Exception as error:  # noqa: BLE001  reported in place of the result
            results.append((index, Died(f"{type(error).__name__}: {error}")))
    return FinishedBatch(results, time.perf_counter() - begin)


class _ThisProcess(Executor):
    """This process, one batch after the other."""

    is_here = True

    @property
    def places(self) -> int:
        return 1

    def submit(self, function: Callable[[T], R], batch: Batch[T]) -> Future[FinishedBatch[R]]:
        future = Future[FinishedBatch[R]]()
        future.set_result(play_batch(function, batch))
        return future

    def close(self) -> None:
        pass


class _Processes(Executor):
    """Worker processes of this machine, each a pool of one that is started when it is needed."""

    is_here = True

    def __init__(self, count: int) -> None:
        self._loky: Any = import_module("joblib.externals.loky")
        self._pools: list[Any] = [None] * count
        self._futures: list[Future[Any] | None] = [None] * count

    @property
    def places(self) -> int:
        return len(self._pools)

    def submit(self, function: Callable[[T], R], batch: Batch[T]) -> Future[FinishedBatch[R]]:
        if None not in self._futures:
            # A search that went on to other tasks may have left batches under way.
            wait([one for one in self._futures if one], return_when=FIRST_COMPLETED)
        futures = enumerate(self._futures)
        idle = next(n for n, future in futures if future is None or future.done())
        before = self._futures[idle]
        if before is None or before.exception() is not None:
            self._end(idle)
            self._pools[idle] = self._loky.ProcessPoolExecutor(1, initializer=_begin_worker)
        future = self._pools[idle].submit(play_batch, function, batch, os.getpid())
        self._futures[idle] = future
        return future

    def begin(self, function: Callable[[Any], Any]) -> None:
        for _ in self._pools:
            self.submit(function, ())

    def close(self) -> None:
        for place in range(len(self._pools)):
            self._end(place)

    def _end(self, place: int) -> None:
        if self._pools[place] is not None:
            self._pools[place].shutdown(wait=False, kill_workers=True)


def _begin_worker() -> None:
    """Ctrl-C reaches every process of a terminal; the one that the user started ends the others.
    And loky ends a worker that grows by 0.3 GB: what ours keep for the next layout is no leak."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    vars(import_module("joblib.externals.loky.process_executor"))[_LEAK] = KEPT_BYTES


_watching = threading.Event()


def _end_with(parent: int) -> None:
    """End this worker soon after its parent, even if that was killed without notice."""
    if _watching.is_set() or not hasattr(os, "getppid"):
        return
    _watching.set()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def check_cluster(url: str) -> None:
    """Raise `UsageError` TW401 unless this is the address of a cluster."""
    scheme, found, address = url.partition("://")
    if not found or scheme not in (*_DASK, "ray") or not address:
        message = f"`{url}` is not the address of a cluster"
        fix = "write `dask://HOST:PORT` or `ray://HOST:PORT`"
        raise UsageError([Problem("TW401", "", message, fix)])


def worker_digest() -> str:
    """The digest of the twin's code that a worker runs."""
    return source_digest()


class _Cluster(Executor):
    """A cluster whose workers have this very twin installed, asked through its own client."""

    def __init__(self, package: str, url: str) -> None:
        self._url = url
        try:
            self._package: Any = import_module(package)
        except ImportError:
            fix = f"pip install 'twin[{'ray' if package == 'ray' else 'dask'}]'"
            raise self._refusal(f"needs the package `{package}`", fix) from None

    def _refusal(self, why: str, fix: str) -> UsageError:
        return UsageError([Problem("TW401", "", f"the cluster `{self._url}` {why}", fix)])

    def _require_same_code(self, digests: set[str]) -> None:
        """Raise `UsageError` where workers run another twin, whose answers would be mixed with
        ours."""
        if digests - {source_digest()}:
            fix = "install this version of twin on its workers, and start them again"
            raise self._refusal("runs other code of the twin", fix)


class _Dask(_Cluster):
    """A Dask cluster. Dask itself plays a task again whose worker died, on three more workers
    unless its scheduler's `allowed-failures` says otherwise, and then gives it up. Workers need a
    nanny (the default of `dask worker`) to come back."""

    def __init__(self, url: str) -> None:
        super().__init__("distributed", url)
        scheme, _, host = url.partition("://")
        address = f"{'tls' if scheme == 'tls' else 'tcp'}://{host}"
        try:
            self._client: Any = self._package.Client(
                address, timeout=_CONNECT_SECONDS, set_as_default=False
            )
        except (OSError, ValueError, TimeoutError) as error:
            fix = "is its scheduler running, and is this its address?"
            raise self._refusal("does not answer", fix) from error
        try:
            self._meet_workers()
        except UsageError:
            self._client.close()
            raise
        self._executor: Any = self._client.get_executor(pure=False)
        self._places = self._threads()
        self._looked = self._seen = time.monotonic()

    def _meet_workers(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
            self._require_same_code(set(self._client.run(worker_digest).values()))
        except TimeoutError:
            raise self._refusal("has no workers", "start some with `dask worker`") from None
        except ModuleNotFoundError as error:
            fix = "install this version of twin on its workers"
            raise self._refusal(f"cannot import `{error.name}`", fix) from None

    @property
    def places(self) -> int:
        return max(1, self._places * _AHEAD)

    def submit(self, function: Callable[[T], R], batch: Batch[T]) -> Future[FinishedBatch[R]]:
        return self._executor.submit(play_batch, function, batch)

    def close(self) -> None:
        self._executor.shutdown(wait=False)  # else unfinished batches would go on for nobody
        self._client.close()

    def _threads(self) -> int:
        return sum(self._client.ncores().values())

    def check(self) -> None:
        now, fix = time.monotonic(), "finished points are stored: start the sweep again"
        if now - self._looked < _LOOK_SECONDS:
            return
        try:
            self._places, self._looked = self._threads(), now
        except (OSError, TimeoutError) as error:
            raise self._refusal("is gone", fix) from error
        if self._places:
            self._seen = now
        elif now - self._seen > _PATIENCE_SECONDS:
            raise self._refusal(f"has had no worker for {_PATIENCE_SECONDS} s", fix)


class _Ray(_Cluster):
    """A Ray cluster."""

    def __init__(self, url: str) -> None:
        super().__init__("ray", url)
        ray = self._package
        if find_spec("grpc") is None:
            raise self._refusal("needs ray's client", "pip install 'twin[ray]'")
        try:
            ray.init(address=url, log_to_driver=False, logging_level="error")
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            fix = "is its head up for a minute, and is this the address of its client server?"
            raise self._refusal("does not answer", fix) from error
        # A task that kills its worker must not be tried on others: it is sent alone here.
        self._remote: Any = ray.remote(max_retries=0)(play_batch)
        try:
            self._require_same_code(self._digests())
        except Exception as error:
            self.close()
            if isinstance(error, UsageError):
                raise
            last = str(error).strip().rpartition("\n")[2]
            raise self._refusal(f"does not play: {last}", "is twin on its workers?") from error

    def _digests(self) -> set[str]:
        """Of the code on every node that plays."""
        ray = self._package
        pinned = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        probe = ray.remote(num_cpus=0)(worker_digest)
        asked = [
            probe.options(scheduling_strategy=pinned(node["NodeID"], soft=False)).remote()
            for node in ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU")
        ]
        if not asked:
            raise self._refusal("has no workers", "start some with `ray start --address`")
        return set(ray.get(asked, timeout=_PATIENCE_SECONDS))

    @property
    def places(self) -> int:
        return max(1, int(self._package.cluster_resources().get("CPU", 1)))

    def submit(self, function: Callable[[T], R], batch: Batch[T]) -> Future[FinishedBatch[R]]:
        return self._remote.remote(function, batch).future()

    def close(self) -> None:
        self._package.shutdown()
