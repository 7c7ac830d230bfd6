"""From the words of a command to an answer: load, and run or recall."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twin.cli.options import Fidelity
from twin.cli.output import NOT_AS_EXPECTED, NOT_CALIBRATED, Output, complain

if TYPE_CHECKING:
    from twin.answers import Run
    from twin.planning.types import Warning
    from twin.reports.expect import Judgement
    from twin.scenario import AnyScenario, Scenario


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says of one scenario."""

    path: str
    sets: Sequence[str]
    fidelity: Fidelity
    cache: bool
    strict: bool


def training(loaded: AnyScenario) -> Scenario:
    """The scenario, if it is a training run. Raises `UsageError` of a weight update, for verbs that
    do not answer those."""
    from twin.errors import Problem, UsageError
    from twin.scenario import UpdateScenario

    if not isinstance(loaded, UpdateScenario):
        return loaded
    message = f"this verb answers training runs, and `{loaded.name}` is a weight update"
    hint = "`twin run`, `twin check`, `twin compare` and `twin resolve` answer weight updates"
    raise UsageError([Problem("TW158", "", message, hint)])


def answered(
    path: str,
    sets: Sequence[str],
    output: Output,
    *,
    cache: bool = True,
    fidelity: Fidelity = Fidelity.EVENTS,
    loaded: Scenario | None = None,
) -> Run:
    """The whole step of one scenario: plan, trace and report, from `runs/` where it is known.
    `loaded` is the scenario, where it is known already. Raises `twin.errors.TwinError` for what is
    wrong with the input."""
    from twin.answers import run
    from twin.loading import load_any

    scenario = loaded or training(load_any(path, sets))
    say_what_is_answered(scenario)
    with progress_bar(output, scenario.name) as progress:
        found = run(
            scenario,
            fidelity=fidelity.value,
            progress=progress,
            cache=cache,
            command=command(path, sets, fidelity),
        )
    if found.cached and output.progress:
        output.message(f"Played before, kept in {found.stored}; --no-cache plays it again.")
    return found


def say_what_is_answered(scenario: Scenario) -> None:
    """A message on stderr, where a verb answers the step of a scenario of which `twin run` answers
    more."""
    from twin.reports.verdict import scope

    if (words := scope(scenario)) is not None:
        complain(f"{scenario.name}: this answers {words}")


def command(path: str, sets: Sequence[str], fidelity: Fidelity = Fidelity.EVENTS) -> str:
    """The shell command that gives the same answer again; of a file whose name is no text, with `?`
    for what is none."""
    overrides = [word for text in sets for word in ("--set", text)]
    other = [] if fidelity is Fidelity.EVENTS else ["--fidelity", fidelity.value]
    words = shlex.join(["twin", "run", path, *overrides, *other])
    return words.encode(errors="replace").decode()


def say_failed(judged: Iterable[Judgement], output: Output) -> int:
    """Say what is not as expected; the exit code of that, 0 where all is."""
    from twin.reports.expect import sentence

    failed = [one for one in judged if one.passed is False]
    for one in failed:
        output.sentence(sentence(one))
    return NOT_AS_EXPECTED if failed else 0


def say_unmeasured(reasons: Iterable[Warning], output: Output, *, strict: bool) -> int:
    """Where strictness is asked for, say why times lie outside of what was measured; the exit code
    of that, 0 where they do not."""
    codes = sorted({one.code for one in reasons}) if strict else ()
    if codes:
        output.sentence(f"Outside of what was measured: {', '.join(codes)}.")
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
