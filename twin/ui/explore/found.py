"""Search results as plain data that goes between processes: layouts that fit, and layouts that
cannot run with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from twin.answers.variants import document, replaced
from twin.explore.search.candidates import Contender, Decision
from twin.explore.search.goal import Goal, days_and_money
from twin.explore.search.recommend import Recommendation
from twin.explore.search.scale import Scaling
from twin.explore.search.space import ParallelLayout, layout_of, schedule_words
from twin.explore.sweep.points import PointOutcome, Status
from twin.explore.sweep.sweep import frontier
from twin.reports.numbers import gibibytes, show
from twin.scenario import Scenario
from twin.spec.kpis import KPIS, Unit
from twin.spec.memory import MemorySpec

UNITS: Final[Mapping[str, Unit]] = {kpi.key: kpi.unit for kpi in KPIS}
Role = Literal["picked", "frontier", "fits", "tried"]
STATUS: Final[Mapping[Status, str]] = {
    "fits": "fits",
    "does_not_fit": "out of memory",
    "impossible": "impossible",
    "failed": "failed",
}
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
    fidelity: str
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
        fidelity="simulated" if one.own_ratio else "estimate",
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
        fidelity="estimate" if outcome.kpis else "",
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


def search_sentences(found: Recommendation) -> tuple[str, ...]:
    """What is recommended, and how it was found."""
    goal, scenario = found.asked.goal, found.asked.scenario
    said = (
        f"{found.examined:,} layouts examined, {sum(found.pruned.values()):,} pruned, "
        f"{found.evaluated:,} estimated, {found.confirmed:,} simulated."
    )
    leaders = [leader for size in found.sizes if (leader := size.leader)]
    shown = found.pick or min(leaders, key=lambda one: one.step_ns, default=None)
    if shown is None:
        return (f"Asked for {goal.words}: no layout of these sizes fits.", said)
    gpus = shown.layout.nodes * scenario.cluster.node.gpus
    best = in_words(gpus, shown.layout.words, shown.best.kpis)
    if found.pick is None:
        return (f"Asked for {goal.words}: nothing that fits meets it. The nearest: {best}", said)
    doubt = max((size.doubt for size in found.sizes), default=0.0)
    left = sum(size.left for size in found.sizes)
    rest = (
        f"{left:,} layouts skipped; none can be more than {100 * doubt:.0f} % faster than the best "
        "of its size."
        if left
        else "No other layout can be faster."
    )
    return (f"Recommended for {goal.words}: {best}", said, rest)


def in_words(gpus: int, layout: str, kpis: Mapping[str, float | None]) -> str:
    """A layout and its figures in one line."""
    days, cost, step = (show(kpis[key], UNITS[key]) for key in ("days", "cost_usd", "step_seconds"))
    paid = "cost unknown" if kpis["cost_usd"] is None else cost
    return f"{gpus:,} GPUs, {layout}: {days}, {paid}, a step of {step}; without failures."


def scaling_sentence(found: Scaling) -> str:
    """What sizes of the cluster bring one layout."""
    fits = sum(one.status == "fits" for _, one in found.rows)
    said = f"One layout on {len(found.rows)} sizes, of which {fits} fit"
    if found.goal == Goal():
        return f"{said}."
    if found.pick is None:
        return f"{said}: none is {found.goal.words}."
    nodes, one = found.rows[found.pick]
    gpus = nodes * found.scenario.cluster.node.gpus
    best = in_words(gpus, layout_of(found.scenario).words, one.kpis)
    return f"{said}. For {found.goal.words}: {best}"
