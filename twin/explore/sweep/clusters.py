"""Sweeps on a Dask or a Ray cluster, whose workers have this very twin installed.

Dask itself plays a task again whose worker died, on three more workers unless its scheduler's
`allowed-failures` says otherwise, and then gives it up; workers need a nanny (the default of
`dask worker`) to come back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from twin.errors import Problem, UsageError
from twin.explore.sweep.lanes import Batch, Lanes, Lost, Played, play_batch

T = TypeVar("T")
R = TypeVar("R")

_DASK: Final = ("dask", "tcp", "tls")
_CONNECT_SECONDS: Final = 15
"""How long a scheduler, and its first worker, may take to answer."""
_PATIENCE_SECONDS: Final = 60
"""How long a cluster may be without any worker before the sweep gives up."""
_LOOK_SECONDS: Final = 2.0
"""How often a cluster is asked how many workers it has."""
_AHEAD: Final = 2
"""Batches per thread of a Dask worker, so that the next one is there when one ends."""


def open_cluster(url: str) -> Lanes:
    """The cluster at an address. Raises `UsageError` where there is none, or one of other code."""
    check_cluster(url)
    scheme, _, address = url.partition("://")
    if scheme in _DASK:
        return _Dask(url, f"tls://{address}" if scheme == "tls" else f"tcp://{address}")
    return _Ray(url)


def check_cluster(url: str) -> None:
    """Raise `UsageError` unless this is the address of a cluster."""
    scheme, found, address = url.partition("://")
    if not found or scheme not in (*_DASK, "ray") or not address:
        message = f"`{url}` is no address of a cluster"
        fix = "write `dask://HOST:PORT` or `ray://HOST:PORT`"
        raise UsageError([Problem("TW401", "", message, fix)])


def _client(name: str, extra: str, url: str) -> Any:
    """The package that talks to a kind of cluster."""
    try:
        return import_module(name)
    except ImportError:
        fix = f"pip install 'twin[{extra}]'"
        raise _refuse(url, f"needs the package `{name}`", fix) from None


def _refuse(url: str, why: str, fix: str = "") -> UsageError:
    return UsageError([Problem("TW401", "", f"the cluster `{url}` {why}", fix)])


def _same_code(url: str, digests: set[str]) -> None:
    """Raise `UsageError` where workers run another twin, whose answers would be mixed with ours."""
    from twin.answers.key import source_digest  # noqa: PLC0415  it reads every module

    if digests - {source_digest()}:
        fix = "install this version of twin on its workers, and start them again"
        raise _refuse(url, "runs other code of the twin", fix)


def worker_source() -> str:
    """The digest of the twin's code that a worker runs."""
    from twin.answers.key import source_digest  # noqa: PLC0415  as above

    return source_digest()


class _Dask(Lanes):
    """A Dask cluster, asked through `distributed`."""

    def __init__(self, url: str, address: str) -> None:
        distributed = _client("distributed", "dask", url)
        self._url = url
        try:
            self._client: Any = distributed.Client(
                address, timeout=_CONNECT_SECONDS, set_as_default=False
            )
        except (OSError, ValueError, TimeoutError) as error:
            fix = "is its scheduler running, and is this its address?"
            raise _refuse(url, "does not answer", fix) from error
        try:
            self._client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
            _same_code(url, set(self._client.run(worker_source).values()))
        except TimeoutError:
            self.close()
            raise _refuse(url, "has no workers", "start some with `dask worker`") from None
        except ModuleNotFoundError as error:
            self.close()
            fix = "install this version of twin on its workers"
            raise _refuse(url, f"cannot import `{error.name}`", fix) from None
        except UsageError:
            self.close()
            raise
        self._out: dict[int, Any] = {}
        self._back: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._places = self._threads()
        self._looked = self._seen = time.monotonic()

    @property
    def places(self) -> int:
        return max(1, self._places * _AHEAD)

    def send(self, number: int, function: Callable[[T], R], batch: Batch[T]) -> None:
        future = self._client.submit(play_batch, function, batch, pure=False)
        self._out[number] = future

        def back(done: Any) -> None:
            self._back.put((number, done))

        future.add_done_callback(back)

    def receive(self) -> tuple[int, Played[Any] | Lost]:
        while True:
            self._look()
            try:
                number, future = self._back.get(timeout=_LOOK_SECONDS)
            except Empty:
                continue
            del self._out[number]
            if future.status == "finished":
                return number, future.result()
            error = None if future.status == "cancelled" else future.exception()
            return number, Lost(_killed(error))

    def close(self) -> None:
        # What is still out would go on playing for nobody.
        self._client.cancel(list(getattr(self, "_out", {}).values()), force=True)
        self._client.close()

    def _threads(self) -> int:
        return sum(self._client.ncores().values())

    def _look(self) -> None:
        """Learn how many workers there are; give up where there have been none for long."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        try:
            self._places, self._looked = self._threads(), now
        except (OSError, TimeoutError) as error:
            raise _refuse(self._url, "is gone", _RESUME) from error
        if self._places:
            self._seen = now
        elif now - self._seen > _PATIENCE_SECONDS:
            raise _refuse(self._url, f"has had no worker for {_PATIENCE_SECONDS} s", _RESUME)


_RESUME: Final = "points that are finished are kept: start the sweep again"


def _killed(error: BaseException | None) -> str:
    """Why a Dask task is lost."""
    if error is None:
        return "the cluster cancelled it"
    if type(error).__name__ == "KilledWorker":
        return "its worker on the cluster died"
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}"


class _Ray(Lanes):
    """A Ray cluster, asked through `ray`."""

    def __init__(self, url: str) -> None:
        self._ray = _client("ray", "ray", url)
        try:
            self._ray.init(address=url, log_to_driver=False, logging_level="error")
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            fix = "is its head running, and is this the address of its client server?"
            raise _refuse(url, "does not answer", fix) from error
        # A task that kills its worker must not be tried on others: it comes back to be told.
        self._remote: Any = self._ray.remote(max_retries=0)(play_batch)
        probe = self._ray.remote(worker_source)
        try:
            _same_code(url, {self._ray.get(probe.remote(), timeout=_PATIENCE_SECONDS)})
        except UsageError:
            self.close()
            raise
        except Exception as error:
            self.close()
            first = str(error).strip().rpartition("\n")[2]
            raise _refuse(url, f"does not play: {first}", "is twin on its workers?") from error
        self._out: dict[Any, int] = {}

    @property
    def places(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def send(self, number: int, function: Callable[[T], R], batch: Batch[T]) -> None:
        self._out[self._remote.remote(function, batch)] = number

    def receive(self) -> tuple[int, Played[Any] | Lost]:
        (done,), _ = self._ray.wait(list(self._out), num_returns=1)
        number = self._out.pop(done)
        try:
            return number, self._ray.get(done)
        except self._ray.exceptions.RayError as error:
            first = str(error).strip().partition("\n")[0]
            return number, Lost(f"its worker on the cluster died: {first}")

    def close(self) -> None:
        self._ray.shutdown()
