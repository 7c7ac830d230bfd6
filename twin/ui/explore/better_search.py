"""The search for a better plan, as one job of the app: Result shows its single edits as cards, and
Explore all that it found. Each find is stored by the scenario's content, so it is searched once."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from textwrap import shorten
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from twin.answers.executors import PoolChoice
from twin.answers.nearest import written
from twin.answers.run_store import write_file
from twin.explore.search.kept import place_of
from twin.explore.sweep.points import points_folder
from twin.loading import scenario_hash
from twin.reports.table import show
from twin.scenario import Scenario
from twin.ui.answers import Failure, Question, scenario_of, study_of
from twin.ui.background import Note
from twin.ui.explore.questions import in_parts, sets

if TYPE_CHECKING:
    from twin.explore.search.improvement import Improvement, Tried

_WORTH: Final = 0.2
"""OURS: share of a loss that an edit has to remove to stand beside it."""
_LETTERS: Final = 44
"""Letters of an edit beside a loss."""
_SHARES: Final = (
    ("single edits", 0.0, 0.35),
    ("edits that need room", 0.35, 0.4),
    ("pairs", 0.4, 0.55),
    ("splits of layers", 0.55, 0.7),
    ("memory by stage", 0.7, 0.75),
    ("known schedules", 0.75, 0.8),
    ("orders of passes", 0.8, 0.98),
)
"""How much of a search each part of it is, roughly."""


@dataclass(frozen=True, slots=True)
class BetterAsked:
    """A search for a better plan than this one, with so many seconds for the order of passes."""

    plan: Question
    passes: float = 0.0

    @property
    def command(self) -> str:
        """The command that asks the same."""
        words = ["twin", "improve", self.plan.name, *sets(self.plan)]
        words += ["--passes", f"{self.passes:g}s"] if self.passes else []
        return shlex.join([*words, "--output", "better.yaml"])


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """A plan that was better than all before it."""

    name: str
    """What was searched when it was found."""
    seconds: float
    """Since the search began."""
    step_seconds: float
    gain: float
    """By which share its step is shorter than that of the written plan."""
    bubble: float
    headroom: float
    """Bytes that the fullest GPU has left."""
    overrides: Mapping[str, str]
    """Against the written plan, as `--set` takes them."""
    costs: str
    """What it takes to do."""


@dataclass(frozen=True, slots=True)
class OfferedEdit:
    """One of the best single edits, or the best pair."""

    overrides: Mapping[str, str]
    """Against the written plan, as `--set` takes them."""
    gain: float
    step: str
    """In words, all in one unit."""
    used: float
    """Bytes that it takes more on the fullest GPU."""
    costs: str


@dataclass(frozen=True, slots=True)
class PlanHistory:
    """What a search for a better plan has found, the written plan first."""

    plans: tuple[FoundPlan, ...] = ()
    offered: tuple[OfferedEdit, ...] = ()
    remedies: Mapping[str, str] = field(default_factory=dict[str, str])
    """By cause of lost time, what is left of it with the single edit that removes most."""
    sentences: tuple[str, ...] = ()
    done: bool = False

    def to_json(self) -> dict[str, Any]:
        """The history in plain data."""
        return asdict(self)


def better(asked: BetterAsked, note: Note) -> PlanHistory | Failure:
    """Better plans than the one that is asked about, each kept when it is found."""
    return study_of(asked.plan, lambda scenario: _better(scenario, asked, note))


def found_before(asked: BetterAsked) -> PlanHistory | None:
    """What a search has found so far, here or in an earlier session; None: nothing."""
    scenario = scenario_of(asked.plan)
    if isinstance(scenario, Failure):
        return None
    try:
        return _HISTORY.validate_json(_place(scenario, asked).read_bytes())
    except (OSError, ValueError):
        return None


_HISTORY: Final = TypeAdapter(PlanHistory)


def _place(scenario: Scenario, asked: BetterAsked) -> Path:
    return place_of("better", [scenario_hash(scenario), asked.passes])


def _keep(scenario: Scenario, asked: BetterAsked, found: PlanHistory) -> None:
    with suppress(OSError):
        write_file(_place(scenario, asked), _HISTORY.dump_json(found))


def _better(scenario: Scenario, asked: BetterAsked, note: Note) -> PlanHistory:
    from twin.explore.search.improve import improving  # noqa: PLC0415  loads what searches orders

    begun, told, history = monotonic(), in_parts(_SHARES, note), PlanHistory()
    how: dict[str, Any] = {"pool": PoolChoice(jobs=1), "folder": points_folder()}
    for found in improving(scenario, **how, passes=asked.passes):
        if found.now is not None:
            told(found.now)
        if found.usual.status == "fits" and _is_better(found, history):
            plan = _found_plan(found, monotonic() - begun if history.plans else 0.0)
            history = replace(_told(found, history), plans=(*history.plans, plan))
            _keep(scenario, asked, history)
        history = _told(found, history)
    history = replace(history, done=True)
    _keep(scenario, asked, history)
    return history


def _told(found: Improvement, history: PlanHistory) -> PlanHistory:
    """The history with what is known by now of single edits and pairs."""
    fits = found.usual.status == "fits"
    return replace(
        history,
        offered=tuple(_offered(found, one) for one in found.offered) if fits else (),
        remedies=remedies(found) if fits else {},
        sentences=tuple(found.sentences),
    )


def _offered(found: Improvement, one: Tried) -> OfferedEdit:
    return OfferedEdit(
        overrides={path: written(value) for path, value in one.edit.overrides.items()},
        gain=found.gain(one),
        step=found.step(one.step_ns),
        used=(found.usual.headroom_bytes or 0.0) - (one.outcome.headroom_bytes or 0.0),
        costs=one.edit.costs,
    )


def remedies(found: Improvement) -> dict[str, str]:
    """By loss, what is left of it with the single edit that removes most, in words."""
    made: dict[str, str] = {}
    helpful = [one for one in found.tried if found.gain(one) > 0]
    for cause, now in found.usual.lost_ns.items() if helpful else ():
        best = min(helpful, key=lambda one: (one.outcome.lost_ns[cause], one.step_ns))
        left = best.outcome.lost_ns[cause]
        if left < (1 - _WORTH) * now:
            made[cause] = f"{show(left / 1e9, 's')} with {_short(best)}"
    return made


def _short(one: Tried) -> str:
    """The edit in few letters: fields without their sections."""
    edits = (
        f"{path.rpartition('.')[2]} = {written(it)}" for path, it in one.edit.overrides.items()
    )
    return shorten(", ".join(edits), _LETTERS, placeholder=" ...")


def _is_better(found: Improvement, history: PlanHistory) -> bool:
    return not history.plans or found.best.step_ns / 1e9 < history.plans[-1].step_seconds


def _found_plan(found: Improvement, seconds: float) -> FoundPlan:
    best, doing = found.best, found.now.doing if found.now else "orders of passes"
    return FoundPlan(
        name=doing.partition(" (")[0] if seconds else "as written",
        seconds=seconds,
        step_seconds=best.step_ns / 1e9,
        gain=found.gain(best),
        bubble=best.outcome.kpis["bubble_fraction"] or 0.0,
        headroom=best.outcome.headroom_bytes or 0.0,
        overrides={path: written(value) for path, value in best.edit.overrides.items()},
        costs=best.edit.costs,
    )
