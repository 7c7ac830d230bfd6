"""A recommendation in words and tables."""

from __future__ import annotations

from typing import Final

from rich.table import Table

from twin.answers.variants import written
from twin.explore.search.judge import words
from twin.explore.search.recommend import Answered, Recommendation, Size
from twin.explore.search.scale import Scaling
from twin.explore.sweep.points import PointOutcome
from twin.reports.numbers import gibibytes, show
from twin.scenario import Scenario
from twin.spec.kpis import KPIS, Unit

_UNITS: Final[dict[str, Unit]] = {kpi.key: kpi.unit for kpi in KPIS}
_FIGURES: Final = {"step_seconds": "step", "days": "run", "cost_usd": "cost", "mfu": "MFU"}


def recommendation_words(found: Recommendation) -> list[str]:
    """What is recommended, and how it was found."""
    goal = found.asked.goal
    failed = [
        f"{len(found.failures):,} layouts were not answered: {reason}"
        for reason in found.failures[:1]
    ]
    said = (
        f"{found.examined:,} layouts examined, {sum(found.pruned.values()):,} pruned, "
        f"{found.evaluated:,} played by the fast path, {found.confirmed:,} by events."
    )
    if found.pick is None:
        nearest = min(
            (leader for size in found.sizes if (leader := size.leader)),
            key=lambda one: one.step_ns,
            default=None,
        )
        reason = "no layout that fits meets it" if nearest else _why_no_layout(found)
        near = f" The nearest: {_in_words(nearest, found.asked.scenario)}" if nearest else ""
        return [f"Asked for {goal.words}: {reason}.{near}", said, *failed]
    pick = found.pick
    scenario = found.asked.scenario
    overrides = pick.layout.overrides(scenario)
    typed = " ".join(f"--set {_quoted(f'{path}={written(v)}')}" for path, v in overrides.items())
    sentences = [f"Recommended for {goal.words}: {_in_words(pick, scenario)}"]
    if typed:
        sentences.append(f"As overrides: {typed}")
    return [*sentences, said, *failed]


def _quoted(text: str) -> str:
    """As a shell takes it."""
    return f"'{text}'" if set(text) & set("[]{}, ") else text


def _why_no_layout(found: Recommendation) -> str:
    return "layouts were not answered" if found.failures else "no layout fits"


def _in_words(one: Answered, scenario: Scenario) -> str:
    gpus = one.layout.nodes * scenario.cluster.node.gpus
    figures = ", ".join(show(one.best.kpis[key], _UNITS[key]) for key in ("days", "cost_usd"))
    step = show(one.best.kpis["step_seconds"], "s")
    late = one.best.kpis.get("days_with_failures")
    failing = f"; with failures {show(late, 'd')}" if late is not None else ""
    return (
        f"{gpus:,} GPUs, {one.layout.words}: {figures} without failures{failing}, a step of {step}."
    )


def recommendation_tables(found: Recommendation) -> tuple[Table, ...]:
    """The best of every size, and why layouts were pruned."""
    return (_sizes(found), _reasons(found))


def _sizes(found: Recommendation) -> Table:
    table = Table(title="The best of every size", title_justify="left", box=None)
    for heading in ("", "GPUs"):
        table.add_column(heading, justify="right")
    table.add_column("layout")
    for heading in (*_FIGURES.values(), "to spare"):
        table.add_column(heading, justify="right")
    table.add_column("")
    frontier = {id(one) for one in found.frontier}
    for size in found.sizes:
        leader = size.leader
        gpus = f"{size.nodes * found.asked.scenario.cluster.node.gpus:,}"
        if leader is None:
            blank = [""] * (len(_FIGURES) + 1)
            table.add_row("", gpus, _why_none(size), *blank, "", style="dim")
            continue
        mark = "*" if id(leader) in frontier else ""
        table.add_row(mark, gpus, leader.layout.words, *_figures(leader.best), _doubt(size))
    table.caption = "* no other size is as quick and as cheap"
    table.caption_justify = "left"
    return table


def _why_none(size: Size) -> str:
    return "none fits" if size.asked else "no layout is left: too large, too slow or not possible"


def _figures(outcome: PointOutcome) -> list[str]:
    room = "" if outcome.headroom_bytes is None else gibibytes(outcome.headroom_bytes)
    return [*(show(outcome.kpis[key], _UNITS[key]) for key in _FIGURES), room]


def _doubt(size: Size) -> str:
    """What is not known of a size."""
    leader = size.leader
    known = "by events" if leader is not None and leader.events else "fast estimate"
    if size.doubt < 0.005:
        return known
    return f"{known}; {size.left:,} not played, at most {100 * size.doubt:.0f} % faster"


def _reasons(found: Recommendation) -> Table:
    table = Table(title="Why layouts were pruned", title_justify="left", box=None)
    table.add_column("layouts", justify="right")
    table.add_column("reason")
    for reason, count in found.pruned.items():
        code = f" ({reason})" if reason.startswith("TW") else ""
        table.add_row(f"{count:,}", f"{words(reason)}{code}")
    left = sum(size.left for size in found.sizes)
    table.add_row(f"{left:,}", "not played: no better at the bound than the best, or beyond --most")
    return table


def scaling_words(found: Scaling) -> str:
    """What sizes of the cluster bring the layout."""
    fits = sum(one.status == "fits" for _, one in found.rows)
    if found.pick is None:
        return f"{len(found.rows)} sizes, of which {fits} fit: none is {found.goal.words}."
    nodes, one = found.rows[found.pick]
    gpus = nodes * found.scenario.cluster.node.gpus
    figures = ", ".join(show(one.kpis[key], _UNITS[key]) for key in ("days", "cost_usd"))
    return (
        f"{len(found.rows)} sizes, of which {fits} fit; {found.goal.words}: {gpus:,} GPUs, "
        f"{figures}."
    )


def scaling_table(found: Scaling) -> Table:
    """One row per size: its figures, or why it is not possible."""
    table = Table(title="One layout on every size", title_justify="left", box=None)
    for heading in ("", "nodes", "GPUs", *_FIGURES.values(), "to spare"):
        table.add_column(heading, justify="right")
    table.add_column("why not")
    best = {found.rows[n][0] for n in found.frontier}
    for nodes, one in found.rows:
        gpus = f"{nodes * found.scenario.cluster.node.gpus:,}"
        figures = _figures(one) if one.kpis else [""] * (len(_FIGURES) + 1)
        why = "; ".join(text for text in (f"{one.code} {one.reason}".strip(), one.hint) if text)
        style = None if one.status == "fits" else "dim"
        mark = "*" if nodes in best else ""
        table.add_row(mark, f"{nodes:,}", gpus, *figures, why, style=style)
    table.caption = "* no other size that fits is as quick and as cheap"
    table.caption_justify = "left"
    return table
