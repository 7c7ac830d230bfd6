"""From the words of a command to an answer: load, plan, lower, simulate, report."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from twin.cli.output import Output

if TYPE_CHECKING:
    from twin.report import Report


def answer(path: str, sets: Sequence[str], output: Output) -> Report:
    """The report of one scenario. Raises `twin.errors.TwinError` for what is wrong with the
    input."""
    from twin.engine import lower, simulate
    from twin.loading import load
    from twin.plan import plan
    from twin.report import Run, report

    begin = time.perf_counter()
    planned = plan(load(path, sets))
    with _progress(output, planned.scenario.name) as progress:
        trace = simulate(lower(planned), progress)
    run = Run(wall_seconds=time.perf_counter() - begin, command=command(path, sets))
    return report(planned, trace, run)


def command(path: str, sets: Sequence[str]) -> str:
    """The shell command that gives the same answer again."""
    overrides = [word for text in sets for word in ("--set", text)]
    return shlex.join(["twin", "run", path, *overrides])


@contextmanager
def _progress(output: Output, name: str) -> Generator[Callable[[float], None] | None]:
    """A progress bar on stderr where a person watches it; None elsewhere."""
    if not output.progress:
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(file=sys.stderr), transient=True) as bars:
        task = bars.add_task(escape(name), total=1.0)
        yield lambda share: bars.update(task, completed=share)
