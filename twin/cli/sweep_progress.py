"""How far a sweep is, on stderr: a bar where a person watches, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from twin.cli.output import Output, complain

if TYPE_CHECKING:
    from twin.sweep.answers import Counts, Told

_EVERY_SECONDS = 10.0
"""Between two lines where nobody watches."""


@contextmanager
def sweep_progress(output: Output) -> Generator[Told | None]:
    """What to tell how far a sweep is; None where nobody wants to know."""
    if output.quiet:
        yield None
    elif output.progress:
        with _bar() as told:
            yield told
    else:
        yield _Lines().tell


def _words(counts: Counts, per_second: float | None) -> str:
    """Counts in words."""
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

    def of(self, counts: Counts) -> float | None:
        now = time.monotonic()
        if self.begin is None:
            self.begin = (now, counts.done)
        begin, done = self.begin
        return (counts.done - done) / (now - begin) if now > begin else None


class _Lines:
    """A line now and then."""

    def __init__(self) -> None:
        self.speed = _Speed()
        self.said = time.monotonic()

    def tell(self, counts: Counts) -> None:
        per_second = self.speed.of(counts)
        if time.monotonic() - self.said >= _EVERY_SECONDS:
            self.said = time.monotonic()
            complain(_words(counts, per_second))


@contextmanager
def _bar() -> Generator[Told]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bars:
        task, speed = bars.add_task("", total=None), _Speed()

        def tell(counts: Counts) -> None:
            words = _words(counts, speed.of(counts))
            bars.update(task, total=counts.points, completed=counts.done, description=words)

        yield tell
