"""Questions of the page Explore: searches and sweeps as frozen data, the equal command, the reading
of typed values, and the worker that answers them one after the other. Each can be stopped; its
finished points stay, since points are stored by content.

Search results as plain data that goes between processes: layouts that fit, and layouts that
cannot run with the reason.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar

from twin.answers.nearest import document, replaced
from twin.errors import Origin, Problem, TwinError, UsageError
from twin.explore.search.candidates import Contender, Decision
from twin.explore.search.space import (
    AXES,
    MOST_SIZES,
    Goal,
    ParallelLayout,
    days_and_money,
    goal_of,
    layout_of,
    nodes_of,
    schedule_words,
)
from twin.explore.sweep.points import PointFidelity, PointOutcome, Status
from twin.explore.sweep.progress import Progress
from twin.explore.sweep.sweep import frontier
from twin.loading.files import table
from twin.reports.table import gibibytes, show
from twin.scenario import Scenario
from twin.spec.cluster import MOST_GPUS
from twin.spec.kpis import KPIS, Unit
from twin.spec.memory import MemorySpec
from twin.ui.answers import Failure, Question, away
from twin.ui.background import Jobs, Pending

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
        return goal_of(self.target, self.budget)

    @property
    def command(self) -> str:
        """The command that asks the same."""
        words = ["twin", "recommend", self.plan.name, *sets(self.plan), "--gpus", self.gpus]
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
    fidelity: PointFidelity = "events"

    @property
    def command(self) -> str:
        """The command that asks the same."""
        words = ["twin", "sweep", self.plan.name, *sets(self.plan)]
        for axis in self.axes:
            words += ["--grid", axis]
        return shlex.join(words)


def sets(asked: Question) -> list[str]:
    """The edits of a plan as words of a command."""
    return [word for text in asked.sets for word in ("--set", text)]


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


_JOBS: Final = Jobs("twin exploring")


def explored(
    study: Study[_T], asked: Hashable, arguments: tuple[Any, ...] | None = None
) -> Pending[_T | Failure]:
    """What a study says, in the making or made. `study` is a function of a module; it takes what is
    asked, and what notes the share that is done; or `arguments`, where these follow from what is
    asked."""
    given = (asked,) if arguments is None else arguments
    return away(_JOBS, (study.__name__, asked), study, given)


def in_parts(
    parts: Sequence[tuple[str, float, float]], note: Callable[[float], None]
) -> Callable[[Progress], None]:
    """Notes a share that grows from part to part of a search: of each part how its name begins, and
    the shares at its begin and end."""

    def told(progress: Progress) -> None:
        for doing, first, last in parts:
            if progress.doing.startswith(doing):
                note(first + (last - first) * progress.done / max(progress.total, 1))

    return told


def known(study: Study[Any], asked: Hashable) -> Pending[Any] | None:
    """The same, where somebody has asked before; None where nobody has."""
    return _JOBS.known((study.__name__, asked))


UNITS: Final[Mapping[str, Unit]] = {kpi.key: kpi.unit for kpi in KPIS}
Role = Literal["picked", "frontier", "fits", "tried"]
STATUS: Final[Mapping[Status, str]] = table(__name__, "STATUS")
"""How a point ended, in the words of the tables of the command line."""


@dataclass(frozen=True, slots=True)
class FoundLayout:
    """One layout on one size of the cluster, and what is said of it."""

    name: str
    """Tells it from all others of its search."""
    gpus: int
    words: str
    memory: str
    schedule: str
    overrides: Mapping[str, Any]
    """What the scenario has otherwise, as `--set` takes it."""
    status: Status
    role: Role
    kpis: Mapping[str, float | None]
    """Empty where it cannot run."""
    headroom: float | None
    why: str = ""
    """Why it does not fit or cannot run, with the nearest fix."""

    def figure(self, key: str) -> str:
        """A key figure in words; empty where there is none."""
        return show(self.kpis[key], UNITS[key]) if self.kpis else ""

    @property
    def memory_left(self) -> str:
        """Memory left on the fullest GPU, or how much too much, in words."""
        if self.headroom is None:
            return ""
        return left_or_over(self.headroom)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search has found."""

    spots: tuple[FoundLayout, ...]
    """Those that fit first, the best of them before the others."""
    sentences: tuple[str, ...]
    pruned: tuple[tuple[int, str, str], ...]
    """How many layouts were pruned, the code of the rule, and what it says."""
    document: Mapping[str, Any]
    """What the command would print with `--json`."""
    contest: Decision
    words: str
    """The goal."""

    @property
    def picked(self) -> FoundLayout | None:
        """What is recommended."""
        return next((one for one in self.spots if one.role == "picked"), None)

    @property
    def fitting(self) -> tuple[FoundLayout, ...]:
        """Those that fit."""
        return tuple(one for one in self.spots if one.status == "fits")


def left_or_over(headroom: float) -> str:
    """Memory left, or how much too much: `3 GiB`, `69 GiB over`."""
    return gibibytes(headroom) if headroom >= 0 else f"{gibibytes(-headroom)} over"


def memory_words(memory: MemorySpec) -> str:
    """A memory policy in short: what is computed again, stored in FP8, and sent to the host."""
    parts = {
        "recompute": memory.recompute,
        "FP8": memory.fp8_store,
        "host": memory.offload,
    }
    said = [f"{name}: {', '.join(names)}" for name, names in parts.items() if names]
    return "; ".join(said) or "keeps all"


def spots_of(contest: Decision) -> list[FoundLayout]:
    """The layouts that fit, best first, and which of them no other beats in days and cost."""
    figures = {
        place: days_and_money(one.now.kpis)
        for place, one in enumerate(contest.contenders)
        if one.now.kpis is not None
    }
    best = set(frontier(figures))
    base = document(contest.scenario)
    made: list[FoundLayout] = []
    for place, one in enumerate(contest.contenders):
        role: Role = "frontier" if place in best else "fits"
        role = "picked" if contest.has_pick and place == 0 else role
        made.append(_spot(one, layout_of(replaced(base, one.overrides)), role))
    return _named(made)


def _spot(one: Contender, layout: ParallelLayout, role: Role) -> FoundLayout:
    return FoundLayout(
        name=f"{one.gpus:,} GPUs, {one.words}",
        gpus=one.gpus,
        words=one.words,
        memory=memory_words(layout.memory),
        schedule=schedule_words(layout.schedule),
        overrides=dict(one.overrides),
        status="fits",
        role=role,
        kpis=dict(one.now.kpis or {}),
        headroom=one.headroom_bytes,
    )


def unfit_spot(scenario: Scenario, layout: ParallelLayout, outcome: PointOutcome) -> FoundLayout:
    """A layout that does not fit or cannot run, with the reason."""
    gpus = layout.nodes * scenario.cluster.node.gpus
    reason = f"{outcome.code} {outcome.reason}".strip()
    return FoundLayout(
        name=f"{gpus:,} GPUs, {layout.words}",
        gpus=gpus,
        words=layout.words,
        memory=memory_words(layout.memory),
        schedule=schedule_words(layout.schedule),
        overrides=layout.overrides(scenario),
        status=outcome.status,
        role="tried",
        kpis=dict(outcome.kpis),
        headroom=outcome.headroom_bytes,
        why=f"{reason}; {outcome.hint}" if outcome.hint else reason,
    )


def _named(spots: Sequence[FoundLayout]) -> list[FoundLayout]:
    """Spots under names that differ: memory policies are said where degrees are the same."""
    names = [one.name for one in spots]
    longer = [
        f"{one.name}, {one.memory}" if names.count(one.name) > 1 else one.name for one in spots
    ]
    return [
        replace(one, name=name if longer.count(name) == 1 else f"{name} ({place + 1})")
        for place, (one, name) in enumerate(zip(spots, longer, strict=True))
    ]


def distinct(spots: Sequence[FoundLayout]) -> tuple[FoundLayout, ...]:
    """Spots under names that differ, those that cannot run last."""
    order: tuple[Status, ...] = ("fits", "does_not_fit", "impossible", "failed")
    return tuple(_named(sorted(spots, key=lambda one: order.index(one.status))))


def short(value: float | None) -> float | None:
    """A number to be sorted by, in four digits: the files have all of them."""
    return None if value is None else float(f"{value:.4g}")
