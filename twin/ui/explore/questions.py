"""Questions of the page Explore: searches and sweeps as frozen data, the equal command, the reading
of typed values, and the worker that answers them one after the other. Each can be stopped; its
finished points stay, since points are stored by content."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from twin import units
from twin.errors import Origin, Problem, TwinError, UsageError
from twin.explore.search.goal import DAY, MOST_SIZES, Goal, nodes_of
from twin.explore.search.space import AXES
from twin.kinds.base import Fidelity
from twin.scenario import Scenario
from twin.spec.cluster import MOST_GPUS
from twin.ui.answers import Failure, Question, away
from twin.ui.background import Jobs, Pending, Worker

_T = TypeVar("_T")

MOST: Final = 16
"""Layouts of each size that a search of the app plays at most: a minute rather than many."""
SLACK: Final = 1.02
"""The usual deadline over the run time of the plan, which events may still move."""
DEGREES: Final = tuple(axis for axis in AXES if axis != "schedule")
"""Axes of a search that a visitor may hold; schedules and memory policies are always tried."""
_FACTOR: Final = re.compile(r"x\s*(\d+)")


@dataclass(frozen=True, slots=True)
class SearchAsked:
    """A search around a plan: sizes in GPUs as `--gpus` takes them, the goal as typed (empty:
    none), degrees that stay as they are in the plan, and whether only its own layout is tried."""

    plan: Question
    gpus: str
    target: str = ""
    budget: str = ""
    held: tuple[tuple[str, int], ...] = ()
    only: bool = False
    most: int = MOST

    @property
    def goal(self) -> Goal:
        """What is asked for. Raises `UsageError` for what is no time or no money."""
        seconds = read_quantity("--target", self.target, "seconds") if self.target else None
        usd = read_quantity("--budget", self.budget, "usd") if self.budget else None
        return Goal(None if seconds is None else seconds / DAY, usd)

    @property
    def command(self) -> str:
        """The command that asks the same."""
        words = ["twin", "recommend", self.plan.name, *_sets(self.plan), "--gpus", self.gpus]
        words += ["--target", self.target] if self.target else []
        words += ["--budget", self.budget] if self.budget else []
        if self.only:
            return shlex.join([*words, "--fixed-layout"])
        for axis, value in self.held:
            words += ["--axis", f"parallel.{axis}={value}"]
        return shlex.join([*words, "--most", str(self.most)])


@dataclass(frozen=True, slots=True)
class SweepAsked:
    """A sweep of a plan: axes as `--grid` takes them; none: what the scenario's section says."""

    plan: Question
    axes: tuple[str, ...] = ()
    fidelity: Fidelity = "fast"

    @property
    def command(self) -> str:
        """The command that asks the same."""
        words = ["twin", "sweep", self.plan.name, *_sets(self.plan)]
        for axis in self.axes:
            words += ["--grid", axis]
        return shlex.join([*words, "--fidelity", self.fidelity])


def _sets(asked: Question) -> list[str]:
    return [word for text in asked.sets for word in ("--set", text)]


def read_quantity(flag: str, text: str, dimension: units.Dimension) -> float:
    """The SI value of what was typed. Raises `UsageError`, with the fix, where it is none."""
    try:
        return units.parse(text, dimension)
    except units.QuantityError as error:
        origin = Origin(flag, 1, 1, text, len(text))
        raise UsageError([Problem("TW433", "", error.message, error.hint, origin)]) from None


def read_sizes(scenario: Scenario, low: str, high: str, step: str) -> str:
    """Sizes as `--gpus` takes them, from three fields; a step `x2` doubles. Raises `UsageError`
    where they are none.

    `read_sizes(scenario, "1024", "4096", "x2")` is `1024,2048,4096`.
    """
    factor = _FACTOR.fullmatch(step.strip())
    if factor is None:
        text = ":".join(one.strip() for one in (low, high, step) if one.strip())
        nodes_of(scenario, text)
        return text
    (first,), (last,) = (nodes_of(scenario, one) for one in (low, high))
    times = int(factor[1])
    if times < 2:
        where = Origin("step", 1, 1, step, len(step))
        message, fix = f"steps of {step.strip()} reach no end", "write `x2` to double"
        raise UsageError([Problem("TW432", "", message, fix, where)])
    found = [first]
    while found[-1] * times <= last and len(found) <= MOST_SIZES:
        found.append(found[-1] * times)
    if last < first:
        nodes_of(scenario, f"{low}:{high}")
    text = ",".join(str(one * scenario.cluster.node.gpus) for one in found)
    nodes_of(scenario, text)
    return text


def usual_degrees(scenario: Scenario) -> tuple[str, ...]:
    """The degrees that a search tries unless a visitor says otherwise: those that matter most, so
    that it takes no minutes."""
    inner = "tensor" if scenario.model.moe is None else "expert"
    return ("pipeline", "virtual", inner)


def usual_sizes(scenario: Scenario) -> tuple[int, int]:
    """GPUs of half and twice the plan's cluster, in whole nodes."""
    nodes, each = scenario.cluster.nodes, scenario.cluster.node.gpus
    return max(1, nodes // 2) * each, min(2 * nodes, MOST_GPUS // each) * each


def problem(check: Callable[[], _T]) -> tuple[_T | None, str]:
    """What a check gives, or what is wrong in one line, with the nearest fix."""
    try:
        return check(), ""
    except TwinError as error:
        one = error.problems[0]
        return None, f"{one.code} {one.message}" + (f": {one.hint}" if one.hint else "")


Study = Callable[..., _T | Failure]


@dataclass(slots=True)
class _Now:
    """The question that is being answered."""

    key: Hashable = None


_JOBS: Final = Jobs("twin exploring")
_WORKER: Final = Worker()
_NOW: Final = _Now()


def explored(
    study: Study[_T], asked: Hashable, arguments: tuple[Any, ...] | None = None
) -> Pending[_T | Failure]:
    """What a study says, in the making or made. `study` is a function of a module; it takes what is
    asked, and what notes the share that is done; or `arguments`, where these follow from what is
    asked."""
    key = (study.__name__, asked)
    given = (asked,) if arguments is None else arguments

    def work(note: Callable[[float], None]) -> _T | Failure:
        _NOW.key = key
        try:
            return away(_WORKER, study, given, note)
        finally:
            _NOW.key = None

    return _JOBS.ask(key, work)


def known(study: Study[Any], asked: Hashable) -> Pending[Any] | None:
    """The same, where somebody has asked before; None where nobody has."""
    with _JOBS.lock:
        return _JOBS.results.get((study.__name__, asked))


def stop(study: Study[Any], asked: Hashable) -> None:
    """Stop a study that is not done: what waits is taken from the queue, what is being worked on
    ends with its process, which is started again for the next."""
    key = (study.__name__, asked)
    with _JOBS.lock:
        pending = _JOBS.results.get(key)
        if pending is None or pending.future.done():
            return
        del _JOBS.results[key]
    if pending.future.cancel():
        return
    process = _WORKER.process
    if _NOW.key == key and process is not None:
        process.kill()
