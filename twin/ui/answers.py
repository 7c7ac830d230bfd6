"""Answers to plans: at once by the fast path, then by events, kept for all sessions.

What a plan says does not depend on who asks, so answers are shared; what a visitor edits is not.
Every cache is bounded."""

from __future__ import annotations

import logging
import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from twin.answers import Run, ask
from twin.errors import Origin, Problem, TwinError, UsageError, render
from twin.loading import load_any
from twin.loading.files import read_tree, shipped_scenarios
from twin.loading.tree import Items, Leaf
from twin.planning import plan
from twin.planning.types import Plan
from twin.scenario import AnyScenario, Scenario, UpdateScenario
from twin.ui.jobs import KEPT, Jobs, Pending
from twin.ui.known import Known
from twin.ui.worker import Note, Worker, WorkerDiedError

_UPDATE: Final = UpdateScenario.section

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

_KEPT_SMALL: Final = 128
"""Scenarios and plans kept."""
GLANCE: Final = 0.05
"""Seconds for which a page waits for events before it shows the fast answer: enough to read a
stored one."""


@dataclass(frozen=True, slots=True)
class Question:
    """A scenario under edits, with the files as they stood at `as_of`. `name` is a shipped scenario
    or a path; where `text` is given, it is what the text is called."""

    name: str
    text: str | None
    sets: tuple[str, ...]
    as_of: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no answer: what is wrong with the plan."""

    problems: tuple[Problem, ...]

    @property
    def text(self) -> str:
        """What the command line would print."""
        return render(self.problems)


@dataclass(frozen=True, slots=True)
class Bug:
    """Why there is no answer: the twin failed in a way that it should not."""

    text: str


Failure = Refusal | Bug


@dataclass(frozen=True, slots=True)
class Reply:
    """What can be said now, and the better answer that is still in the making (None: this is
    it)."""

    now: Run | Failure
    better: Pending[Run | Failure] | None = None


def question(known: Known, name: str, text: str | None, sets: tuple[str, ...]) -> Question:
    """What to ask of a scenario that the app knows, or whose text the visitor brought."""
    return Question(known.files.get(name, name) if text is None else name, text, sets, known.stamp)


def reply(asked: Question) -> Reply:
    """The answer by events if it is there, else the fast one while events are played."""
    planned = plan_of(asked)
    if not isinstance(planned, Plan):
        return Reply(planned)
    better = _EVENTS.ask(asked, lambda note: away(_PLAYER, play, (asked,), note))
    by_events = better.within(GLANCE)
    return Reply(by_events) if by_events is not None else Reply(fast(asked), better)


@lru_cache(_KEPT_SMALL)
def scenario_of(asked: Question) -> Scenario | Failure:
    """The scenario, or what is wrong with it."""
    return guarded(lambda: _load(asked))


@lru_cache(_KEPT_SMALL)
def plan_of(asked: Question) -> Plan | Failure:
    """The plan, which already knows whether it fits, or what is wrong with it."""
    scenario = scenario_of(asked)
    return guarded(lambda: plan(scenario)) if isinstance(scenario, Scenario) else scenario


@lru_cache(KEPT)
def fast(asked: Question) -> Run | Failure:
    """The answer by the longest path: the same plan without the play of shared links."""
    scenario = scenario_of(asked)
    if not isinstance(scenario, Scenario):
        return scenario
    return guarded(
        lambda: ask(scenario, fidelity="fast", cache=False, command=command(asked, fast=True))
    )


def play(asked: Question, note: Note) -> Run | Failure:
    """The answer by events, from the stored runs or played now."""
    scenario = scenario_of(asked)
    if not isinstance(scenario, Scenario):
        return scenario
    return guarded(lambda: ask(scenario, progress=note, command=command(asked)))


def command(asked: Question, *, fast: bool = False) -> str:
    """The shell command that gives the same answer; of a text, once it is saved as a file."""
    sets = (word for text in asked.sets for word in ("--set", text))
    fidelity = ("--fidelity", "fast") if fast else ()
    return shlex.join(["twin", "run", asked.name, *sets, *fidelity])


def guarded(work: Callable[[], _T]) -> _T | Failure:
    """What the work gives, or why it gives nothing; a bug's traceback goes to the app's log."""
    try:
        return work()
    except TwinError as error:
        return Refusal(error.problems)
    except Exception as error:  # noqa: BLE001  a bug of ours must not take the page along
        _LOG.error("an answer failed", exc_info=error)
        return Bug(f"{type(error).__name__}: {error}")


def _load(asked: Question) -> Scenario:
    if asked.text is None:
        return _training(load_any(asked.name, asked.sets))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / Path(asked.name).name
        file.write_text(asked.text, encoding="utf-8")
        try:
            _refuse_files(file)
            return _training(load_any(file, asked.sets))
        except TwinError as error:
            raise type(error)(_of_visitor(one, file) for one in error.problems) from None


def _training(scenario: AnyScenario) -> Scenario:
    """The scenario, if it is a training run; weight updates have a page of their own."""
    if isinstance(scenario, Scenario):
        return scenario
    message = "this is a weight update, and plans are training runs"
    hint = f"`twin ui FILE` brings it to the page Weight update; remove `{_UPDATE}` to train"
    raise UsageError([Problem("TW158", _UPDATE, message, hint, scenario.origin(_UPDATE))])


def _refuse_files(file: Path) -> None:
    """A text from a browser may extend shipped scenarios, and read no file of this machine."""
    tree, _ = read_tree(file)
    child = tree.children.get("extends") if tree else None
    nodes = child.node.nodes if child and isinstance(child.node, Items) else [child and child.node]
    names = {name for one in shipped_scenarios() for name in (one, f"{one}.yaml")}
    problems = [
        Problem(
            "TW001",
            "extends",
            f"no shipped scenario `{node.value}`",
            "what is brought to the app can extend shipped scenarios only",
            node.origin,
        )
        for node in nodes
        if isinstance(node, Leaf) and node.value not in names
    ]
    if problems:
        raise UsageError(problems)


def _of_visitor(problem: Problem, file: Path) -> Problem:
    """The problem at the visitor's file, not at the copy that was read."""
    return replace(problem, origin=_renamed(problem.origin, file))


def _renamed(origin: Origin | None, file: Path) -> Origin | None:
    if origin is None:
        return None
    own = origin.file == str(file)
    return replace(origin, file=file.name if own else origin.file, via=_renamed(origin.via, file))


def studied(study: Callable[..., _T | Failure], *asked: Question) -> Pending[_T | Failure]:
    """A study of some plans, in the making or made. `study` is a function of a module; it takes the
    questions, and what notes the share that is done."""
    return _STUDIES.ask((study.__name__, asked), lambda note: away(_STUDENT, study, asked, note))


def away(
    worker: Worker, work: Callable[..., _T | Failure], arguments: tuple[Any, ...], note: Note
) -> _T | Failure:
    """What a function of a module says in another process."""
    try:
        return worker.perform(work, arguments, note)
    except WorkerDiedError as error:
        return Bug(str(error))


_EVENTS: Final = Jobs("twin events")
_PLAYER: Final = Worker()
_STUDIES: Final = Jobs("twin studies")
_STUDENT: Final = Worker()
