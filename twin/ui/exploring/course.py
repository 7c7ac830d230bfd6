"""Long questions of the page Explore, in one worker process of their own, one after the other: each
can be stopped, and what it has answered by then stays, since points are kept by content."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from twin.ui.answers import Failure, away
from twin.ui.jobs import Jobs, Pending
from twin.ui.worker import Worker

_T = TypeVar("_T")
Study = Callable[..., _T | Failure]


@dataclass(slots=True)
class _Now:
    """What the worker is at."""

    key: Hashable = None


_JOBS: Final = Jobs("twin exploring")
_WORKER: Final = Worker()
_NOW: Final = _Now()


def explored(
    study: Study[_T], asked: Hashable, arguments: tuple[Any, ...] | None = None
) -> Pending[_T | Failure]:
    """What a study says, in the making or made. `study` is a function of a module; it takes what is
    asked, and what notes the share that is done; or `arguments`, where these follow from what is
    asked."""
    key = (study.__name__, asked)
    given = (asked,) if arguments is None else arguments

    def work(note: Callable[[float], None]) -> _T | Failure:
        _NOW.key = key
        try:
            return away(_WORKER, study, given, note)
        finally:
            _NOW.key = None

    return _JOBS.ask(key, work)


def known(study: Study[Any], asked: Hashable) -> Pending[Any] | None:
    """The same, where somebody has asked before; None where nobody has."""
    with _JOBS.lock:
        return _JOBS.shelf.get((study.__name__, asked))


def stop(study: Study[Any], asked: Hashable) -> None:
    """Stop a study that is not done: what waits is taken from the queue, what is being worked on
    ends with its process, which is started again for the next."""
    key = (study.__name__, asked)
    with _JOBS.lock:
        pending = _JOBS.shelf.get(key)
        if pending is None or pending.future.done():
            return
        del _JOBS.shelf[key]
    if pending.future.cancel():
        return
    process = _WORKER.process
    if _NOW.key == key and process is not None:
        process.kill()
