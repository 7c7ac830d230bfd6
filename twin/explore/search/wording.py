"""A search in sentences, the same on the command line and in the app."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twin.answers.nearest import written
from twin.explore.search.recommendation import Answered, Recommendation
from twin.explore.search.scale import Scaling
from twin.explore.search.space import Goal, layout_of
from twin.explore.sweep.points import PointOutcome
from twin.reports.table import ranged, show
from twin.scenario import Scenario
from twin.spec.kpis import KPIS, Unit

UNITS: Final[Mapping[str, Unit]] = {kpi.key: kpi.unit for kpi in KPIS}


def recommendation_sentences(found: Recommendation) -> list[str]:
    """What is recommended, or why nothing is; how it was found, and whether it is proven."""
    goal, scenario, pick = found.asked.goal, found.asked.scenario, found.pick
    failed = [
        f"{len(found.failures):,} layouts were not answered: {reason}"
        for reason in found.failures[:1]
    ]
    said = (
        f"{found.examined:,} layouts examined, {sum(found.pruned.values()):,} pruned, "
        f"{found.evaluated:,} planned, {found.simulated:,} simulated. {proof(found)}"
    )
    if pick is None:
        return [f"Asked for {goal.words}: {_why_no_pick(found)}", said, *failed]
    sentences = [f"Recommended for {goal.words}: {in_words(pick, scenario)}"]
    if found.launched is not None:
        name = scenario.software.name if scenario.software else ""
        sentences.append(f"As {name} launches it: {in_words(found.launched, scenario)}")
    return [*sentences, said, *failed]


def proof(found: Recommendation) -> str:
    """Whether another layout might take the decision."""
    if not found.open:
        return "No other layout of the space can be better." if found.pick else "This is proven."
    if found.pick is None:
        return f"{found.open:,} layouts are open, one of which might meet it. Give it more time."
    share = f"{100 * found.at_most_better:.0f} %"
    return f"{found.open:,} layouts are open, at most {share} better. Give it more time."


def _why_no_pick(found: Recommendation) -> str:
    """Why nothing is recommended, what comes nearest, and how many GPUs it would take."""
    if found.nearest is None:
        return "layouts were not answered." if found.failures else "no layout of these sizes fits."
    scenario = found.asked.scenario
    said = f"no layout that fits meets it. The nearest: {in_words(found.nearest, scenario)}"
    if found.enough is not None:
        said += f" Enough would be {in_words(found.enough, scenario)}"
    return said


def in_words(one: Answered, scenario: Scenario) -> str:
    """A layout and its figures in a sentence."""
    gpus = one.layout.nodes * scenario.cluster.node.gpus
    return f"{gpus:,} GPUs, {one.layout.words}: {figures_in_words(one.answer)}"


def figures_in_words(one: PointOutcome) -> str:
    """Days, cost and step with their intervals, without failures; then the days with them."""
    days, cost, step = (
        ranged(one.kpis[key], one.intervals.get(key), UNITS[key])
        for key in ("days", "cost_usd", "step_seconds")
    )
    paid = "cost unknown" if one.kpis["cost_usd"] is None else cost
    late = one.kpis.get("days_with_failures")
    failing = f"; with failures {show(late, 'd')}" if late is not None else ""
    return f"{days}, {paid} without failures{failing}, a step of {step}."


def overrides_in_words(found: Recommendation) -> str:
    """What is recommended as `--set` takes it; empty where it is the scenario as written."""
    if found.pick is None:
        return ""
    overrides = found.pick.layout.overrides(found.asked.scenario)
    return " ".join(f"--set {_quoted(f'{path}={written(v)}')}" for path, v in overrides.items())


def _quoted(text: str) -> str:
    """As a shell takes it."""
    return f"'{text}'" if set(text) & set("[]{}, ") else text


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
    words = layout_of(found.scenario).words
    return f"{said}. For {found.goal.words}: {gpus:,} GPUs, {words}: {figures_in_words(one)}"
