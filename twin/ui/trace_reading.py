"""Reading a profiler's traces in another process, in bounded memory."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import chdir, contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from threading import Event, Thread
from typing import Final

from twin.evidence.traces.answer import TraceAnswer, traced
from twin.ui.answers import Failure, Planned, Question, guarded, plan_of
from twin.ui.background import Note

_LOOK: Final = 0.25
"""Seconds between two looks at how far the files are read."""
_OPEN: Final = Path("/proc/self/fd")
_TOLD: Final = Path("/proc/self/fdinfo")
"""Where Linux tells which files a process has open, and its places in them; elsewhere no share of
the work is told."""
_READ: Final = 0.6
"""Share of the work that is reading; the rest is to account for what was read."""


def traces(
    folder: str, names: Sequence[str], asked: Question | None, note: Note
) -> TraceAnswer | Failure:
    """What the traces of these names in a folder say, beside the plan of a question, where it has
    one."""
    planned = None if asked is None else plan_of(asked)
    plan = planned.plan if isinstance(planned, Planned) else None

    def read() -> TraceAnswer:
        # In the folder, messages name a file as its owner does.
        with chdir(folder), _noted([Path(name) for name in names], note):
            return traced(map(Path, names), plan)

    return guarded(read)


@contextmanager
def _noted(paths: Sequence[Path], note: Note) -> Generator[None]:
    """Notes meanwhile which share of the files has been read, one after the other."""
    ended = Event()
    watch = Thread(target=_watch, args=(paths, note, ended), daemon=True)
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()


def _watch(paths: Sequence[Path], note: Note, ended: Event) -> None:
    sizes = {path.resolve(): path.stat().st_size for path in paths}
    begins = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
    while not ended.wait(_LOOK):
        for path, place in _places():
            if path in begins:
                note(_READ * min(1.0, (begins[path] + place) / max(1, sum(sizes.values()))))


def _places() -> Iterator[tuple[Path, int]]:
    """The files that are open, each with the bytes before its place."""
    with suppress(OSError):
        for one in _OPEN.iterdir():
            with suppress(OSError):
                told = (_TOLD / one.name).read_text(encoding="ascii")
                yield one.readlink(), int(told.split()[1])
