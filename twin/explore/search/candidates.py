"""Who competes for a decision: layouts of a recommendation that fit, and what is said of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from math import inf
from pathlib import Path
from typing import Any, Final

from twin.answers.executors import PoolChoice
from twin.answers.nearest import document, replaced, value_at, written
from twin.explore.search.recommend import TIE
from twin.explore.search.recommendation import Answered, Recommendation, Told
from twin.explore.search.scale import Scaling
from twin.explore.search.space import Goal, Kpis, layout_of, schedule_words
from twin.explore.sweep.points import PointOutcome
from twin.scenario import Scenario

MOST: Final = 12
"""Layouts that are asked about at other values: each costs an answer per value."""
MOST_BEYOND: Final = 3
"""Of them, those beyond reach."""
REACH: Final = 0.3
"""How much worse than the pick, or than the goal, one may be to be asked about: ours, several times
what the ranges of most inputs move a step by."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a layout stands at some value."""

    kpis: Kpis | None
    """None: it cannot run, or does not fit."""
    why: str = ""
    """Then: why not."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A layout that fits, with what is said of it now."""

    nodes: int
    gpus: int
    words: str
    schedule: str
    """The end of `words`."""
    overrides: Mapping[str, Any]
    now: Standing
    headroom_bytes: float

    @property
    def named(self) -> dict[str, Any]:
        """What it is, in plain data."""
        return {"layout": self.words, "gpus": self.gpus, "overrides": dict(self.overrides)}


def standing(outcome: PointOutcome) -> Standing:
    """How a layout stands by an answer."""
    if outcome.status != "fits":
        return Standing(None, outcome.reason)
    return Standing(outcome.kpis)


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision: what is asked for, and who could have been chosen."""

    scenario: Scenario
    goal: Goal
    contenders: tuple[Contender, ...]
    """All that fit; the pick first, where there is one."""
    has_pick: bool
    pool: PoolChoice
    folder: Path | None = None
    progress: Told | None = None

    @property
    def pick(self) -> Contender | None:
        """Who is chosen now."""
        return self.contenders[0] if self.has_pick else None

    @property
    def near(self) -> tuple[Contender, ...]:
        """Those that are asked about at other values, at most `MOST`, the pick first: what is
        within reach of goal and pick, half of it of the pick's size, of all others each size's best
        in turn; and the best of sizes beyond reach, as long as they meet the goal, since they may
        win where nobody nearer does."""
        pick = self.pick
        reach = [one for one in self.contenders if self._is_within_reach(one)]
        own = [one for one in reach if pick is not None and one.nodes == pick.nodes]
        others = _in_turn([one for one in reach if one not in own])
        beyond = self._beyond(reach)
        room = MOST - min(len(beyond), MOST_BEYOND)
        first = own[: room - min(len(others), room // 2)]
        found = (*first, *others)[:room] + beyond
        return found[:MOST] or self.contenders[:MOST_BEYOND]

    def _beyond(self, reach: Sequence[Contender]) -> tuple[Contender, ...]:
        """The best of each size that none within reach has, the safest of them first: those with
        most time or money to spare."""
        sizes = {one.nodes for one in reach}
        left = [
            one for one in self.contenders if one.nodes not in sizes and self.goal.met(_kpis(one))
        ]
        leaders = {one.nodes: one for one in reversed(left)}
        return tuple(sorted(leaders.values(), key=lambda one: self.excess(one.now)))

    def name(self, one: Contender) -> str:
        """What a contender is called beside the pick: its schedule where that differs, its memory
        policy and the like where nothing else does."""
        pick = self.pick
        if pick is None or one is pick:
            return one.words
        short = one.words
        if one.schedule == pick.schedule:
            short = one.words.removesuffix(one.schedule).strip()
        if one.words != pick.words or one.nodes != pick.nodes:
            return short
        base = document(self.scenario)
        own = [
            f"{path}={written(one.overrides.get(path, value_at(base, path)))}"
            for path in dict.fromkeys([*one.overrides, *pick.overrides])
            if one.overrides.get(path) != pick.overrides.get(path)
        ]
        return f"{short} with {', '.join(own)}" if own else short

    def excess(self, one: Standing) -> float:
        """By which share a run is beyond what is asked for; negative where it meets it."""
        return inf if one.kpis is None else self.goal.excess(one.kpis)

    def _is_within_reach(self, one: Contender) -> bool:
        kpis, pick = one.now.kpis, self.pick
        if one is pick:
            return True
        if kpis is None or self.excess(one.now) > REACH:
            return False
        if pick is None or pick.now.kpis is None:
            return True
        return self.goal.worth(kpis)[0] <= (1 + REACH) * self.goal.worth(pick.now.kpis)[0]

    def best(self, stands: Sequence[Standing]) -> list[int]:
        """Who meets the goal where contenders stand like this, the best first."""
        worth = {
            place: self.goal.worth(one.kpis)
            for place, one in enumerate(stands)
            if one.kpis is not None and self.goal.met(one.kpis)
        }
        return sorted(worth, key=worth.__getitem__)

    def safest(self, stands: Sequence[Standing]) -> list[int]:
        """Who can run where contenders stand like this, the farthest within the goal first."""
        runs = [place for place, one in enumerate(stands) if one.kpis is not None]
        return sorted(runs, key=lambda place: self.excess(stands[place]))

    def decide(self, stands: Sequence[Standing]) -> int | None:
        """Who is chosen where contenders stand like this: the pick as long as it meets the goal and
        nobody is better by more than `TIE`; None where nobody meets it."""
        best = self.best(stands)
        if not best:
            return None
        pick, first = stands[0].kpis, stands[best[0]].kpis
        if not self.has_pick or 0 not in best or pick is None or first is None:
            return best[0]
        keeps = self.goal.worth(pick)[0] <= (1 + TIE) * self.goal.worth(first)[0]
        return 0 if keeps else best[0]


def _kpis(one: Contender) -> Kpis:
    """Its key figures now."""
    assert one.now.kpis is not None  # only what fits competes
    return one.now.kpis


def _in_turn(ranked: Sequence[Contender]) -> tuple[Contender, ...]:
    """The best of every size, then the second of every size, and so on."""
    sizes: dict[int, list[Contender]] = {}
    for one in ranked:
        sizes.setdefault(one.nodes, []).append(one)
    turns = chain.from_iterable(zip_longest(*sizes.values()))
    return tuple(one for one in turns if one is not None)


def contest(found: Recommendation, *, progress: Told | None = None) -> Decision:
    """The decision of a search."""
    asked, pick = found.asked, found.pick
    made = [
        (_contender(one, asked.scenario), one is pick)
        for size in found.sizes
        for one in size.fitting
    ]
    has_pick, told = pick is not None, progress or asked.progress
    empty = Decision(asked.scenario, asked.goal, (), has_pick, asked.pool, asked.folder, told)
    return _ranked(empty, made)


def _ranked(empty: Decision, made: Sequence[tuple[Contender, bool]]) -> Decision:
    """The contest with its contenders, each marked if it is the pick: the pick first, then those
    that meet the goal, the best first, then by how far others are from it."""

    def rank(marked: tuple[Contender, bool]) -> tuple[bool, float, float, float]:
        one, is_pick = marked
        return not is_pick, max(0.0, empty.excess(one.now)), *empty.goal.worth(_kpis(one))

    return replace(empty, contenders=tuple(one for one, _ in sorted(made, key=rank)))


def _contender(one: Answered, scenario: Scenario) -> Contender:
    layout = one.layout
    return Contender(
        nodes=layout.nodes,
        gpus=layout.nodes * scenario.cluster.node.gpus,
        words=layout.words,
        schedule=schedule_words(layout.schedule),
        overrides=layout.overrides(scenario),
        now=Standing(one.answer.kpis),
        headroom_bytes=one.answer.headroom_bytes or 0.0,
    )


def fixed_contest(
    found: Scaling, *, pool: PoolChoice, folder: Path | None = None, progress: Told | None = None
) -> Decision:
    """The decision between sizes of a cluster for one layout."""
    scenario, words = found.scenario, layout_of(found.scenario).words
    made: list[tuple[Contender, bool]] = []
    for place, (nodes, outcome) in enumerate(found.rows):
        if outcome.status == "fits":
            one = Contender(
                nodes=nodes,
                gpus=nodes * scenario.cluster.node.gpus,
                words=words,
                schedule=schedule_words(scenario.parallel.schedule),
                overrides={} if nodes == scenario.cluster.nodes else {"cluster.nodes": nodes},
                now=Standing(outcome.kpis),
                headroom_bytes=outcome.headroom_bytes or 0.0,
            )
            made.append((one, place == found.pick))
    has_pick = found.pick is not None
    return _ranked(Decision(scenario, found.goal, (), has_pick, pool, folder, progress), made)


def scenario_of(contest: Decision, one: Contender) -> Scenario:
    """The scenario of a contender, with the sources of its numbers."""
    made = replaced(document(contest.scenario), one.overrides)
    changed = {name: getattr(made, name) for name in ("cluster", "parallel", "memory", "expect")}
    return contest.scenario.model_copy(update=changed)
