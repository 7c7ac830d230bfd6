"""What a search for a better plan has found: single edits, pairs, and the plan after each step of
the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from twin.explore.schedules.found import Found
from twin.explore.search.edits import Edit
from twin.explore.sweep.points import PointOutcome
from twin.explore.sweep.progress import Progress
from twin.loading import scenario_hash
from twin.reports.table import duration_beside, percent
from twin.scenario import Scenario

VERSION: Final = 2
"""Version of the JSON document."""
LEAST: Final = 0.005
"""Share of the step that an edit has to gain to be offered: OURS."""
OFFERED: Final = 3
"""Single edits that are offered: OURS, one card each."""


@dataclass(frozen=True, slots=True)
class Tried:
    """An edit and its answer by events."""

    edit: Edit
    outcome: PointOutcome

    @property
    def step_ns(self) -> float:
        """Of the edited plan."""
        assert self.outcome.step_ns is not None  # only what was answered is kept
        return self.outcome.step_ns


@dataclass(frozen=True, slots=True)
class Milestone:
    """The plan after one step of the search."""

    name: str
    """The step of the search."""
    best: Tried
    """The best plan so far, as edits of the written one."""
    better: bool
    """Whether this step found it."""
    seconds: float
    """Of the wall clock, for this step."""


@dataclass(frozen=True, slots=True)
class Improvement:
    """What was tried of a plan, and what is better."""

    scenario: Scenario
    usual: PointOutcome
    """The plan as it is."""
    tried: tuple[Tried, ...] = ()
    """Single edits that fit, the fastest first."""
    pairs: tuple[Tried, ...] = ()
    """Pairs that fit, the fastest first."""
    impossible: int = 0
    """Edits that break a rule."""
    too_large: int = 0
    """Edits that do not fit."""
    untried: int = 0
    """Edits and pairs for which no time was left."""
    milestones: tuple[Milestone, ...] = ()
    """The plan as written, and after each step of the search."""
    order: Found | None = None
    """What is known of orders of passes, where they were searched."""
    now: Progress | None = None
    """What is being done; None: the search has ended."""

    @property
    def best(self) -> Tried:
        """The best plan that is known, as edits of the written one."""
        known = (*(one.best for one in self.milestones), *self.offered[:1])
        written = Tried(Edit((), {}), self.usual)
        return min(known, key=lambda one: one.step_ns, default=written)

    @property
    def singles(self) -> tuple[Tried, ...]:
        """The best edits, of each field one, that fit and gain `LEAST`."""
        best = first_of_each_field(self.tried)
        return tuple(one for one in best if self.gain(one) >= LEAST)[:OFFERED]

    @property
    def pair(self) -> Tried | None:
        """The best pair; None where no pair gains `LEAST` over the best single edit."""
        best = self.singles[0].step_ns if self.singles else self.usual.step_ns or 0
        return next((one for one in self.pairs[:1] if one.step_ns <= (1 - LEAST) * best), None)

    @property
    def offered(self) -> tuple[Tried, ...]:
        """The best pair, if there is one, and the best edits."""
        return (*((self.pair,) if self.pair else ()), *self.singles)

    @property
    def _now(self) -> float:
        assert self.usual.step_ns is not None  # nothing is tried of a plan that does not fit
        return self.usual.step_ns

    def step(self, ns: float) -> str:
        """The words of a step, all in the unit of the shortest."""
        return duration_beside(ns / 1e9, self.best.step_ns / 1e9)

    def gain(self, one: Tried) -> float:
        """By which share the step is shorter."""
        return 1 - one.step_ns / self._now

    @property
    def sentences(self) -> list[str]:
        """What is better, in words."""
        if self.usual.status != "fits":
            return ["The plan does not fit: `twin check` names the nearest plans that do."]
        counted = (
            f"{len(self.tried)} edits and {len(self.pairs)} pairs that fit were simulated; "
            f"{self.too_large} do not fit, {self.impossible} are impossible."
        )
        late = f" {self.untried} edits and pairs were not tried: out of time." * bool(self.untried)
        order = self.order.sentences if self.order else []
        best = self.best
        if self.gain(best) < LEAST:
            tried = " that was tried" * bool(self.untried)
            return [f"No plan{tried} is {100 * LEAST:g} % faster.", counted + late, *order]
        first = (
            f"A step takes {self.step(best.step_ns)} instead of {self.step(self._now)}, "
            f"{percent(self.gain(best))} less, with {best.edit.words}."
        )
        return [first, counted + late, *order]

    def to_json(self) -> dict[str, Any]:
        """The improvement as a versioned document."""
        pair = self.pair
        return {
            "version": VERSION,
            "name": self.scenario.name,
            "hash": scenario_hash(self.scenario),
            "step_seconds": self.usual.step_ns and self.usual.step_ns / 1e9,
            "fits": self.usual.status == "fits",
            "headroom_bytes": self.usual.headroom_bytes,
            "least_gain": LEAST,
            "edits": [self.told(one) for one in self.singles],
            "pair": None if pair is None else self.told(pair),
            "tried": [self.told(one) for one in (*self.tried, *self.pairs)],
            "impossible": self.impossible,
            "too_large": self.too_large,
            "not_tried": self.untried,
            "best": self.told(self.best) if self.milestones else None,
            "milestones": [self._passed(one) for one in self.milestones],
            "order": None if self.order is None else self.order.to_json(),
        }

    def _passed(self, one: Milestone) -> dict[str, Any]:
        """A step of the search in plain data."""
        outcome = one.best.outcome
        return {
            "name": one.name,
            "better": one.better,
            "set": one.best.edit.words,
            "gain": self.gain(one.best),
            "step_seconds": one.best.step_ns / 1e9,
            "bubble_fraction": outcome.kpis.get("bubble_fraction"),
            "headroom_bytes": outcome.headroom_bytes,
            "search_seconds": one.seconds,
        }

    def told(self, one: Tried) -> dict[str, Any]:
        """An edit in plain data."""
        return {
            "fields": list(one.edit.fields),
            "overrides": dict(one.edit.overrides),
            "set": one.edit.words,
            "costs": one.edit.costs,
            "gain": self.gain(one),
            "step_seconds": one.step_ns / 1e9,
            "headroom_bytes": one.outcome.headroom_bytes,
            "kpis": dict(one.outcome.kpis),
        }


def first_of_each_field(ranked: Sequence[Tried]) -> list[Tried]:
    """Of edits in order, the first of each field."""
    found: dict[tuple[str, ...], Tried] = {}
    for one in ranked:
        found.setdefault(one.edit.fields, one)
    return list(found.values())
