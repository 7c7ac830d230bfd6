"""From the words of a command to an answer: load, and run or recall."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from twin.cli.options import Fidelity
from twin.cli.output import (
    DOES_NOT_FIT,
    IMPOSSIBLE,
    NOT_AS_EXPECTED,
    NOT_CALIBRATED,
    Output,
    complain,
)

if TYPE_CHECKING:
    from twin.answers import Run
    from twin.kinds.base import Check, Verb
    from twin.planning.types import Warning
    from twin.reports.expect import Judgement
    from twin.reports.head import Head
    from twin.scenario import Root, Scenario


def training(loaded: Root, verb: Verb = "explain") -> Scenario:
    """The training run whose step a verb answers. Raises `UsageError` TW158 where the verb does not
    apply to this kind of work."""
    from twin.kinds.base import kind_of
    from twin.scenario import Scenario

    kind_of(loaded).refuse(verb, loaded)
    assert isinstance(loaded, Scenario), "a kind without a step refuses"
    return loaded


def say_scope(scenario: Root) -> None:
    """A message on stderr, where a verb answers the step of a scenario of which `twin run` answers
    more."""
    from twin.kinds.base import kind_of

    if (words := kind_of(scenario).scope(scenario)) is not None:
        complain(f"{scenario.name}: this answers {words}")


def answered(  # noqa: PLR0913  one parameter per option of the command line
    path: str,
    sets: Sequence[str],
    output: Output,
    *,
    cache: bool = True,
    fidelity: Fidelity = Fidelity.EVENTS,
    loaded: Root | None = None,
    step_of: Verb | None = None,
) -> Run:
    """The answer to one scenario: plan, trace and report, from `runs/` where it is known. `loaded`
    is the scenario, where it is known already; `step_of` is a verb that answers the training step
    alone. Raises `twin.errors.TwinError` for what is wrong with the input."""
    from twin.answers import ask
    from twin.kinds.base import kind_named
    from twin.loading import load_any

    scenario = loaded or load_any(path, sets)
    if step_of is not None:
        training(scenario, step_of)
        say_scope(scenario)
    with progress_bar(output, scenario.name) as progress:
        found = ask(
            scenario,
            fidelity=fidelity.value,
            progress=progress,
            cache=cache,
            command=command(path, sets, fidelity),
            kind=kind_named("step") if step_of else None,
        )
    if found.cached and output.progress:
        output.message(f"Recalled from {found.stored}; --no-cache simulates it again.")
    return found


def exit_code(answer: Head | Check, failed: int) -> int:
    """The exit code of an answer: impossible, does not fit, or what its expectations say."""
    if not answer.possible:
        return IMPOSSIBLE
    return failed if answer.fits else DOES_NOT_FIT


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
