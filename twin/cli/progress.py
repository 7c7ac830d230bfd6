"""How far a search or a sweep is, on stderr: a bar where a person watches, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypeVar

from twin.cli.output import Output, complain

if TYPE_CHECKING:
    from twin.explore.search.recommend import Progress as SearchProgress
    from twin.explore.search.recommend import Told as SearchTold
    from twin.explore.sweep.sweep import SweepProgress, Told

T = TypeVar("T")
_EVERY_SECONDS = 10.0
"""Between two lines where nobody watches."""


def search_progress(output: Output) -> AbstractContextManager[SearchTold | None]:
    """What to tell how far a search is; None where nobody wants to know."""
    return _progress(output, _drawn, _Changes().tell)


def _drawn(now: SearchProgress) -> tuple[str, int, int]:
    return f"{now.doing}: {now.done} of {now.total}", now.done, now.total


class _Changes:
    """A line when something else begins."""

    def __init__(self) -> None:
        self.said = ""

    def tell(self, now: SearchProgress) -> None:
        if now.doing != self.said:
            self.said = now.doing
            complain(f"{now.doing} ...")


def sweep_progress(output: Output) -> AbstractContextManager[Told | None]:
    """What to tell how far a sweep is; None where nobody wants to know."""
    speed = _Speed()

    def drawn(counts: SweepProgress) -> tuple[str, int, int]:
        return _words(counts, speed.of(counts)), counts.done, counts.points

    return _progress(output, drawn, _NowAndThen().tell)


def _words(counts: SweepProgress, per_second: float | None) -> str:
    """SweepProgress in words."""
    parts = [f"{counts.done:,} of {counts.points:,} points"]
    parts += [f"{counts.cached:,} known"] * bool(counts.cached)
    parts += [f"{counts.failed:,} failed"] * bool(counts.failed)
    if per_second:
        left = (counts.points - counts.done) / per_second
        parts += [f"{per_second:,.1f} per second", f"{left:,.0f} s left"]
    return ", ".join(parts)


class _Speed:
    """Points per second since the first that was told."""

    def __init__(self) -> None:
        self.begin: tuple[float, int] | None = None

    def of(self, counts: SweepProgress) -> float | None:
        now = time.monotonic()
        if self.begin is None:
            self.begin = (now, counts.done)
        begin, done = self.begin
        return (counts.done - done) / (now - begin) if now > begin else None


class _NowAndThen:
    """A line now and then."""

    def __init__(self) -> None:
        self.speed = _Speed()
        self.said = time.monotonic()

    def tell(self, counts: SweepProgress) -> None:
        per_second = self.speed.of(counts)
        if time.monotonic() - self.said >= _EVERY_SECONDS:
            self.said = time.monotonic()
            complain(_words(counts, per_second))


@contextmanager
def _progress(
    output: Output, drawn: Callable[[T], tuple[str, int, int]], line: Callable[[T], None]
) -> Generator[Callable[[T], None] | None]:
    """What to tell how far it is; None where nobody wants to know. `drawn` gives the words beside
    the bar, what is done and of how much; `line` writes, or does not."""
    if output.quiet:
        yield None
    elif output.progress:
        with _bar(drawn) as told:
            yield told
    else:
        yield line


@contextmanager
def _bar(drawn: Callable[[T], tuple[str, int, int]]) -> Generator[Callable[[T], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bars:
        task = bars.add_task("", total=None)

        def tell(now: T) -> None:
            words, done, total = drawn(now)
            bars.update(task, total=total, completed=done, description=words)

        yield tell
