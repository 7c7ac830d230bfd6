"""From the words of a command to an answer: load, run or recall, and show progress on stderr: a bar
where a person watches, lines elsewhere."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypeVar

from twin.answers import Run, ask
from twin.cli.output import (
    DOES_NOT_FIT,
    IMPOSSIBLE,
    NOT_AS_EXPECTED,
    NOT_CALIBRATED,
    Output,
    complain,
)
from twin.kinds.base import Check, Fidelity, Verb, kind_named, kind_of
from twin.loading import load_any
from twin.planning.types import Warning
from twin.reports.head import Head, Judgement, sentence
from twin.scenario import Root, Scenario

if TYPE_CHECKING:
    from twin.explore.search.recommendation import Told as SearchTold
    from twin.explore.sweep.progress import Progress as SearchProgress
    from twin.explore.sweep.sweep import SweepProgress, Told

T = TypeVar("T")
_EVERY_SECONDS = 10.0
"""Between two lines where nobody watches."""


def training(loaded: Root, verb: Verb = "explain") -> Scenario:
    """The training run whose step a verb answers. Raises `UsageError` TW158 where the verb does not
    apply to this kind of work."""

    kind_of(loaded).refuse(verb, loaded)
    assert isinstance(loaded, Scenario), "a kind without a step refuses"
    return loaded


def say_scope(scenario: Root) -> None:
    """A message on stderr, where a verb answers the step of a scenario of which `twin run` answers
    more."""

    if (words := kind_of(scenario).scope(scenario)) is not None:
        complain(f"{scenario.name}: this answers {words}")


def answered(  # noqa: PLR0913  one parameter per option of the command line
    path: str,
    sets: Sequence[str],
    output: Output,
    *,
    cache: bool = True,
    fidelity: Fidelity = "events",
    loaded: Root | None = None,
    step_of: Verb | None = None,
    physics: bool = False,
) -> Run:
    """The answer to one scenario: plan, trace and report, from `runs/` where it is known. `loaded`
    is the scenario, where it is known already; `step_of` is a verb that answers the training step
    alone. Raises `twin.errors.TwinError` for what is wrong with the input."""

    scenario = loaded or load_any(path, sets)
    if step_of is not None:
        training(scenario, step_of)
        say_scope(scenario)
    with progress_bar(output, scenario.name) as progress:
        found = ask(
            scenario,
            fidelity=fidelity,
            progress=progress,
            cache=cache,
            command=command(path, sets, fidelity),
            kind=kind_named("step") if step_of else None,
            physics=physics,
        )
    if found.cached and output.progress:
        output.message(f"Recalled from {found.stored}; --no-cache simulates it again.")
    return found


def exit_code(answer: Head | Check, failed: int) -> int:
    """The exit code of an answer: impossible, does not fit, or what its expectations say."""
    if not answer.possible:
        return IMPOSSIBLE
    return failed if answer.fits else DOES_NOT_FIT


def command(path: str, sets: Sequence[str], fidelity: Fidelity = "events") -> str:
    """The shell command that gives the same answer again; of a file whose name is no text, with `?`
    for what is none."""
    overrides = [word for text in sets for word in ("--set", text)]
    other = [] if fidelity == "events" else ["--fidelity", fidelity]
    words = shlex.join(["twin", "run", path, *overrides, *other])
    return words.encode(errors="replace").decode()


def say_failed(judged: Iterable[Judgement], output: Output) -> int:
    """Say what is not as expected; the exit code of that, 0 where all is."""

    failed = [one for one in judged if one.passed is False]
    for one in failed:
        output.sentence(sentence(one))
    return NOT_AS_EXPECTED if failed else 0


def say_unmeasured(reasons: Iterable[Warning], output: Output, *, strict: bool) -> int:
    """Where strictness is asked for, say why times lie outside of what was measured; the exit code
    of that, 0 where they do not."""
    codes = sorted({one.code for one in reasons}) if strict else ()
    if codes:
        output.sentence(f"Outside the calibrated range: {', '.join(codes)}.")
    return NOT_CALIBRATED if codes else 0


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
