"""From the words of a command to an answer: load, and run or recall."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from twin.cli.options import Fidelity
from twin.cli.output import Output

if TYPE_CHECKING:
    from twin.report import Report
    from twin.runs import Run


def answer(
    path: str,
    sets: Sequence[str],
    output: Output,
    *,
    cache: bool = True,
    fidelity: Fidelity = Fidelity.EVENTS,
) -> Report:
    """The report of one scenario, from `runs/` where it is known. Raises `twin.errors.TwinError`
    for what is wrong with the input."""
    return answered(path, sets, output, cache=cache, fidelity=fidelity).report


def answered(
    path: str,
    sets: Sequence[str],
    output: Output,
    *,
    cache: bool = True,
    fidelity: Fidelity = Fidelity.EVENTS,
) -> Run:
    """The whole run of one scenario: plan, trace and report."""
    from twin.loading import load
    from twin.runs import run

    scenario = load(path, sets)
    with progress_bar(output, scenario.name) as progress:
        found = run(
            scenario,
            fidelity="fast" if fidelity is Fidelity.FAST else "events",
            progress=progress,
            cache=cache,
            command=command(path, sets, fidelity),
        )
    if found.cached and output.progress:
        output.message(f"Played before, kept in {found.stored}; --no-cache plays it again.")
    return found


def command(path: str, sets: Sequence[str], fidelity: Fidelity = Fidelity.EVENTS) -> str:
    """The shell command that gives the same answer again; of a file whose name is no text, with `?`
    for what is none."""
    overrides = [word for text in sets for word in ("--set", text)]
    other = [] if fidelity is Fidelity.EVENTS else ["--fidelity", fidelity.value]
    words = shlex.join(["twin", "run", path, *overrides, *other])
    return words.encode(errors="replace").decode()


@contextmanager
def progress_bar(output: Output, name: str) -> Generator[Callable[[float], None] | None]:
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
