"""The decision that a search comes to, in plain data: the plans with their intervals, what must be
true for them, what was assumed, and what was examined. Page, app and command show the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from twin.engine import plan
from twin.explore.search.decision_page import Decision, NamedPlan
from twin.explore.search.recommendation import Answered, Recommendation
from twin.explore.search.wording import UNITS, recommendation_sentences
from twin.loading import scenario_hash
from twin.reports.table import count, digits, gibibytes, ranged, show
from twin.scenario import Scenario

_FIGURES: Final = {"days": "Run", "cost_usd": "Cost", "step_seconds": "Step", "mfu": "MFU"}
_MOST_WARNINGS: Final = 5
"""Assumptions on the page: the app has all of them."""


def decision(found: Recommendation, asked: str, command: str, dated: str) -> Decision:
    """What a search comes to. `asked` is the question in words, `command` asks it again, `dated` is
    the day, as `2026-11-27`."""
    scenario, shown = found.asked.scenario, found.pick or found.nearest
    verdict, *rest = recommendation_sentences(found)
    base = shown.layout.applied(scenario) if shown else scenario
    return Decision(
        title=scenario.name,
        asked=asked,
        met=found.pick is not None,
        headline=_headline(found),
        verdict=verdict,
        plans=tuple(_plans(found)),
        deadline=found.asked.goal.days,
        conditions=tuple(conditions(found)),
        assumed=tuple(_assumed(base)),
        examined=tuple(rest),
        command=command,
        stamp=f"{dated}, scenario {scenario_hash(scenario)[:12]}",
    )


def _headline(found: Recommendation) -> str:
    """The decision in one line; empty where no plan can be named."""
    one = found.pick or found.nearest
    if one is None:
        return ""
    gpus = f"{one.layout.nodes * found.asked.scenario.cluster.node.gpus:,} GPUs"
    figures = _named("", one, found.asked.scenario).figures
    paid = f" and cost {figures['Cost']}" if "Cost" in figures else ""
    said = f"{gpus} finish in {figures['Run']}{paid}."
    asked = found.asked.goal.words
    return said if found.pick else f"Nothing meets {asked}, as far as was searched. Nearest: {said}"


def _plans(found: Recommendation) -> Iterator[NamedPlan]:
    """The plans that a decision names, the recommended one first."""
    scenario, pick = found.asked.scenario, found.pick or found.nearest
    if pick is None:
        return
    yield _named("Recommended" if found.pick else "Nearest", pick, scenario)
    if found.launched is not None:
        yield _named("As launched", found.launched, scenario)
    if found.enough is not None:
        yield _named("Enough", found.enough, scenario)
    for other in found.alternatives:
        faster = _days(other)[1] < _days(pick)[1]
        yield _named("Faster" if faster else "Cheaper", other, scenario)
    safe = _safe(found)
    if safe is not None and safe not in (pick, *found.alternatives):
        yield _named("Safe", safe, scenario)


def _named(name: str, one: Answered, scenario: Scenario) -> NamedPlan:
    best = one.answer
    figures = {
        head: ranged(best.kpis[key], best.intervals.get(key), UNITS[key])
        for key, head in _FIGURES.items()
        if best.kpis.get(key) is not None
    }
    left = {} if best.headroom_bytes is None else {"Memory left": gibibytes(best.headroom_bytes)}
    return NamedPlan(
        name,
        one.layout.nodes * scenario.cluster.node.gpus,
        one.layout.words,
        figures | left,
        _days(one),
        one.layout.overrides(scenario),
    )


def _days(one: Answered) -> tuple[float, float, float]:
    """Days of a run: the least of the interval, expected, the most."""
    days = one.answer.kpis["days"]
    assert days is not None  # every answered run has them
    low, high = one.answer.intervals.get("days") or (days, days)
    return low, days, high


def conditions(found: Recommendation) -> Iterator[str]:
    """What must be true for the plan to meet the goal, and when another plan is better: exact
    arithmetic on the figures of the plans, without failures."""
    pick = found.pick or found.nearest
    if pick is None:
        return
    yield from _deadline(found, pick)
    yield from _money(found, pick)
    for other in found.alternatives:
        yield from _trade(found, pick, other)


def _deadline(found: Recommendation, pick: Answered) -> Iterator[str]:
    """The MFU that the deadline needs, the days that failures may take, and whether the interval
    is within it."""
    most, mfu = found.asked.goal.days, pick.answer.kpis["mfu"]
    if most is None or mfu is None:
        return
    _, days, high = _days(pick)
    predicted = ranged(mfu, pick.answer.intervals.get("mfu"), UNITS["mfu"])
    needed = show(mfu * days / most, UNITS["mfu"])
    yield f"The MFU is at least {needed}. Predicted is {predicted}."
    if days < most:
        yield f"Failures and restarts take at most {show(most - days, 'd')}."
    if days <= most < high:
        said = f"The slow end of the interval, {show(high, 'd')}, misses the deadline."
        if (safe := _safe(found)) is not None:
            gpus = safe.layout.nodes * found.asked.scenario.cluster.node.gpus
            said += f" That of {gpus:,} GPUs meets it."
        yield said


def _safe(found: Recommendation) -> Answered | None:
    """Of the best of each size the best whose whole interval is within the deadline;
    None without a deadline, or where there is none."""
    goal = found.asked.goal
    leaders = [one for size in found.sizes if (one := size.leader)]
    sure = [one for one in leaders if goal.days is not None and _days(one)[2] <= goal.days]
    met = [one for one in sure if goal.met(one.answer.kpis)]
    return min(met, key=lambda one: goal.worth(one.answer.kpis), default=None)


def _money(found: Recommendation, pick: Answered) -> Iterator[str]:
    """The price that a budget allows, and what renting costs for each GPU, beside buying."""
    scenario, kpis = found.asked.scenario, pick.answer.kpis
    hours, cost, budget = kpis["gpu_hours"], kpis["cost_usd"], found.asked.goal.usd
    if cost is None or not hours:
        return
    if budget is not None:
        yield f"A GPU-hour costs at most {budget / hours:.2f} USD."
    gpus = pick.layout.nodes * scenario.cluster.node.gpus
    rent = ranged(cost / gpus, _each(pick.answer.intervals.get("cost_usd"), gpus), "USD")
    yield (
        f"Rent is {rent} per GPU. Buying is better only if owning a GPU for "
        f"{show(_days(pick)[1], 'd')} costs less, with its network, power and staff."
    )


def _each(span: tuple[float, float] | None, gpus: int) -> tuple[float, float] | None:
    return None if span is None else (span[0] / gpus, span[1] / gpus)


def _trade(found: Recommendation, pick: Answered, other: Answered) -> Iterator[str]:
    """When an alternative is better: what a day is worth, or how late the run may be."""
    gpus = f"{other.layout.nodes * found.asked.scenario.cluster.node.gpus:,} GPUs"
    sooner = _days(pick)[1] - _days(other)[1]
    mine, theirs = pick.answer.kpis["cost_usd"], other.answer.kpis["cost_usd"]
    if sooner < 0:
        yield f"{gpus} are cheaper if the run may take {show(_days(other)[1], 'd')}."
    elif mine is not None and theirs is not None and theirs > mine:
        worth = count(float(digits((theirs - mine) / sooner).replace(",", "")))
        yield f"{gpus} are better if a day earlier is worth more than {worth} USD."


def _assumed(scenario: Scenario) -> Iterator[str]:
    """What the answer rests on, the planner's own choices first."""
    train, software = scenario.train, scenario.software
    yield (
        f"{scenario.model.name}, {count(train.tokens)} tokens, "
        f"{train.global_batch_sequences:,} sequences of {train.sequence:,} tokens in a step, "
        f"{train.precision}, {train.optimizer.kind}."
    )
    yield (
        f"{scenario.cluster.node.name} on {scenario.cluster.fabric.name}; "
        f"software {software.name if software else 'none: bare kernels'}"
        f"{', assumed' if scenario.software_assumed else ''}; "
        f"kernels as measured in {scenario.calibration.name}."
    )
    price = scenario.cost.gpu_hour if scenario.cost else None
    yield (
        f"{price:.2f} USD per GPU-hour." if price else "No price is set, so there is no cost."
    ) + " Days and cost are without failures unless said."
    for warning in plan(scenario).warnings[:_MOST_WARNINGS]:
        yield warning.message
