"""Answers to plans, simulated in the background and kept for all sessions.

An answer does not depend on who asks, so answers are shared; edits are not. Every cache is
bounded."""

from __future__ import annotations

import contextlib
import json
import logging
import shlex
import tempfile
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from twin.answers import Run, ask
from twin.answers.nearest import MemoryLever, Suggestion, levers, nearest_fit
from twin.answers.run_store import has, key
from twin.errors import Origin, Problem, TwinError, UsageError, render
from twin.explore.study.attribution import Attribution, attribution
from twin.explore.study.hidden import HiddenExpert, hidden_expert
from twin.explore.study.influence import Influence, influence
from twin.explore.study.software import StackAnswer, under_other_software
from twin.explore.sweep.grid import read_axes
from twin.kinds.base import Check, Kind, kind_named, kind_of
from twin.loading import load_any
from twin.loading.catalog import is_a_file
from twin.loading.files import read_tree, shipped_scenarios
from twin.loading.load import named_files, read_overrides
from twin.loading.tree import Items, KeyPath, Leaf, walk
from twin.reports.serving import Serving, serving
from twin.reports.uneven import Uneven
from twin.ui.background import IDLE, Jobs, Note, Pending, Stopped, Worker, WorkerDiedError
from twin.ui.scenarios import ScenarioFiles

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

_KEPT_SMALL: Final = 128
"""Scenarios and plans kept."""
GLANCE: Final = 0.05
"""Seconds for which a page waits for work that has other work before it."""
MOMENT: Final = 1.0
"""The same where the work is next: most simulations take less."""


@dataclass(frozen=True, slots=True)
class Question:
    """A scenario under edits, with the files as they stood at `as_of`. `name` is a shipped scenario
    or a path; where `text` is given, it is the name of the text."""

    name: str
    text: str | None
    sets: tuple[str, ...]
    as_of: int
    step_only: bool = False
    """Ask for the training step alone, where the scenario is of more."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no answer: the problems of the plan."""

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
    """The answer; or else the simulation that brings it, or that a visitor stopped."""

    now: Run | Failure | None
    coming: Pending[Run | Failure] | None = None
    stopped: Stopped | None = None


def question(known: ScenarioFiles, name: str, text: str | None, sets: tuple[str, ...]) -> Question:
    """The question about a scenario that the app knows, or whose text the visitor brought."""
    return Question(known.files.get(name, name) if text is None else name, text, sets, known.stamp)


def reply(asked: Question) -> Reply:
    """The simulated answer if it is there or comes within a moment."""
    planned = plan_of(asked)
    if isinstance(planned, Failure):
        return Reply(planned)
    coming = begun(asked)
    soon = _stored(planned) or _SIMULATIONS.is_next(coming)
    found = coming.within(MOMENT if soon else GLANCE)
    if found is None:
        return Reply(None, coming)
    return Reply(None, stopped=found) if isinstance(found, Stopped) else Reply(found)


def begun(asked: Question) -> Pending[Run | Failure]:
    """The simulated answer, in the making or made."""
    return away(_SIMULATIONS, asked, simulated, (asked,))


def is_known(asked: Question) -> bool:
    """Whether a plan was asked about before."""
    return _SIMULATIONS.known(asked) is not None


def begin() -> None:
    """Start the process that simulates."""
    away(_SIMULATIONS, "ready", ready, ())


def prepare(first: str) -> None:
    """Where the machine has nothing else to do, simulate the shipped plans that have no stored
    answer, first the one that the app opens with."""
    worker = Worker(IDLE)
    with contextlib.suppress(WorkerDiedError):
        worker.perform(store_shipped, (first,), lambda _: None)
    worker.end()


def ready(note: Note) -> None:
    """Nothing: what a process loads to do it is what it needs to simulate."""
    del note


def store_shipped(first: str, note: Note) -> None:
    """Simulate the shipped scenarios whose answers the folder of stored runs takes, and lacks."""
    names = sorted(shipped_scenarios(), key=lambda name: name != first)
    for at, name in enumerate(names):
        note(at / len(names))
        asked = Question(name, None, (), 0)
        planned = plan_of(asked)
        if isinstance(planned, Planned) and planned.kind.is_stored and not _stored(planned):
            _answered(asked, command=command(asked))


def _stored(planned: Planned) -> bool:
    """Whether the simulated answer is stored."""
    return planned.kind.is_stored and has(key(planned.scenario, "events"))


@dataclass(frozen=True, slots=True)
class Planned:
    """A scenario with its kind and plan."""

    scenario: Any
    kind: Kind
    plan: Any


@lru_cache(_KEPT_SMALL)
def scenario_of(asked: Question) -> Any | Failure:
    """The scenario, or what is wrong with it."""
    return guarded(lambda: _load(asked))


@lru_cache(_KEPT_SMALL)
def plan_of(asked: Question) -> Planned | Failure:
    """The plan with its kind, or what is wrong with it."""
    return study_of(asked, lambda scenario: _plan(asked, scenario))


def _plan(asked: Question, scenario: Any) -> Planned:
    kind = _kind(asked, scenario)
    return Planned(scenario, kind, kind.plan(scenario))


@lru_cache(_KEPT_SMALL)
def checked(asked: Question) -> Check | Failure:
    """What is known of a plan without a simulation."""
    return study_of(asked, lambda scenario: _kind(asked, scenario).check(scenario))


def _kind(asked: Question, scenario: Any) -> Kind:
    """The kind of work that answers a question."""
    return kind_named("step") if asked.step_only else kind_of(scenario)


def simulated(asked: Question, note: Note) -> Run | Failure:
    """The simulated answer, from the stored runs or simulated now."""
    found = _answered(asked, progress=note, command=command(asked))
    if isinstance(found, Run):
        found.__dict__.pop("program", None)  # large, and made again in a moment
    return found


def _answered(asked: Question, **how: Any) -> Run | Failure:
    return study_of(asked, lambda scenario: ask(scenario, kind=_kind(asked, scenario), **how))


def command(asked: Question) -> str:
    """The shell command that gives the same answer; of a text, once it is saved as a file."""
    sets = (word for text in asked.sets for word in ("--set", text))
    return shlex.join(["twin", "run", asked.name, *sets])


def guarded(work: Callable[[], _T]) -> _T | Failure:
    """The result of some work, or why there is none; a bug's traceback goes to the app's log."""
    try:
        return work()
    except TwinError as error:
        return Refusal(error.problems)
    except Exception as error:  # noqa: BLE001  a bug of ours must not take the page along
        _LOG.error("an answer failed", exc_info=error)
        return Bug(f"{type(error).__name__}: {error}")


def _load(asked: Question) -> Any:
    with opened(asked) as file:
        return load_any(file, asked.sets)


@contextlib.contextmanager
def opened(asked: Question, axes: Sequence[str] = ()) -> Generator[str | Path]:
    """What the loader takes of a question; a text that a visitor brought is a file for as long as
    this lasts. What visitors write may extend shipped scenarios, and reads no file of this machine:
    neither their text, nor their edits, nor the axes of a sweep. Raises `UsageError` otherwise."""
    grid = [f"{axis.path}={json.dumps(value)}" for axis in read_axes(axes) for value in axis.values]
    _refuse_named(named_files(read_overrides([*asked.sets, *grid])))
    if asked.text is None:
        yield asked.name
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / Path(asked.name).name
        file.write_text(asked.text, encoding="utf-8")
        try:
            _refuse_files(file)
            yield file
        except TwinError as error:
            raise type(error)(_of_visitor(problem, file) for problem in error.problems) from None


def _refuse_named(named: Iterable[tuple[KeyPath, Leaf]]) -> None:
    problems = [
        Problem(
            "TW001",
            ".".join(path),
            f"the app opens no file `{leaf.value}`",
            "write what the file holds instead of its name",
            leaf.origin,
        )
        for path, leaf in named
    ]
    if problems:
        raise UsageError(problems)


def _refuse_files(file: Path) -> None:
    tree, _ = read_tree(file)
    if tree is None:
        return
    _refuse_named(named_files([tree]))
    leaves = ((path, child.node) for path, child in walk(tree) if path[:1] == ("sweep",))
    _refuse_named(
        (path, node) for path, node in leaves if isinstance(node, Leaf) and is_a_file(node.value)
    )
    child = tree.children.get("extends")
    nodes = child.node.nodes if child and isinstance(child.node, Items) else [child and child.node]
    names = {name for shipped in shipped_scenarios() for name in (shipped, f"{shipped}.yaml")}
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


@lru_cache(_KEPT_SMALL)
def engines(asked: Question) -> tuple[Serving, ...] | Failure:
    """The inference engines of a scenario over users and context."""
    return study_of(asked, serving)


def studied(study: Callable[..., _T | Failure], *asked: Question) -> Pending[_T | Failure]:
    """A study of some plans, in the making or made. `study` is a function of a module; it takes the
    questions, and what notes the share that is done."""
    return away(_STUDIES, (study.__name__, asked), study, asked)


def away(
    jobs: Jobs, key: Hashable, work: Callable[..., _T | Failure], arguments: tuple[Any, ...]
) -> Pending[_T | Failure]:
    """The result of a module's function, worked out by the process of these jobs."""

    def perform(note: Note) -> _T | Failure:
        try:
            return jobs.process.perform(work, arguments, note)
        except WorkerDiedError as error:
            return Bug(str(error))

    return jobs.ask(key, perform)


def nearest(asked: Question, note: Note) -> tuple[Suggestion, ...] | Failure:
    """The nearest plans that fit."""
    del note
    return study_of(asked, nearest_fit)


def influences(asked: Question, note: Note) -> tuple[Influence, ...] | Failure:
    """How much each uncertain number matters."""
    return study_of(asked, lambda scenario: influence(scenario, note))


def stacks(asked: Question, note: Note) -> tuple[StackAnswer, ...] | Failure:
    """The step as it is, and under each other software stack of its GPU."""

    def load(more: Sequence[str]) -> Any:
        return _load(replace(asked, sets=(*asked.sets, *more)))

    return guarded(lambda: under_other_software(load, note))


def freeing(asked: Question, note: Note) -> tuple[MemoryLever, ...] | Failure:
    """What single changes would free on the fullest GPU, and what they cost."""
    del note
    return study_of(asked, lambda scenario: levers(scenario, timed=True))


def hiding(asked: Question, note: Note) -> HiddenExpert | Failure:
    """The largest degree of expert parallelism that stays hidden, simulated."""
    return study_of(asked, lambda scenario: hidden_expert(scenario, note))


def attributed(base: Question, other: Question, note: Note) -> Attribution | Failure:
    """The difference of two plans, split over the inputs that differ."""

    def split(first: Any) -> Attribution | Failure:
        return study_of(other, lambda second: attribution(first, second, progress=note))

    return study_of(base, split)


def on_one_fabric(base: Question, other: Question, note: Note) -> Any | Failure:
    """What two plans lose to each other whose nodes are under the same leaves."""

    def both(first: Any) -> Any | Failure:
        share = kind_of(first).together
        return study_of(other, lambda second: share([first, second], "interleaved", note))

    return study_of(base, both)


def who_waits(asked: Question, note: Note) -> Uneven | Failure | None:
    """What it costs that ranks differ, from a step in which every rank is simulated."""
    return study_of(
        asked, lambda scenario: ask(scenario, fidelity="all", progress=note).report.uneven
    )


def study_of(asked: Question, study: Callable[[Any], _T | Failure]) -> _T | Failure:
    """The result of a study of a scenario, or why there is none."""
    scenario = scenario_of(asked)
    return scenario if isinstance(scenario, Failure) else guarded(lambda: study(scenario))


_SIMULATIONS: Final = Jobs("twin simulations")
_STUDIES: Final = Jobs("twin studies")
