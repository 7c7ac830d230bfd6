"""A decision on one page to send: the question, the recommended plan and its alternatives with
their intervals, what was assumed, what was not examined, and how to ask again.

The page is self-contained and has no script: it opens on a telephone, and prints on one sheet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from twin.explore.search.recommendation import Answered, Recommendation
from twin.explore.search.wording import UNITS, recommendation_sentences
from twin.loading import scenario_hash
from twin.planning import plan
from twin.reports.table import count, gibibytes, ranged, show
from twin.scenario import Scenario

_TEMPLATE: Final = Path(__file__).with_suffix(".html")
_FIGURES: Final = {"days": "Run", "cost_usd": "Cost", "step_seconds": "Step", "mfu": "MFU"}
_MOST_WARNINGS: Final = 5
"""Assumptions on the page: the app has all of them."""
_WIDTH, _LEFT, _ROW = 640, 150, 26
"""Of the drawing of intervals, in pixels."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the page is about."""

    title: str
    asked: str
    """the question in words"""
    found: Recommendation
    command: str
    """asks the same again"""
    dated: str
    """day, as `2026-11-27`"""


def page(one: Decision) -> str:
    """The document; every text in it is escaped."""
    found, scenario = one.found, one.found.asked.scenario
    shown = found.pick or found.nearest
    first, *rest = recommendation_sentences(found)
    plans = _plans(found)
    base = shown.layout.applied(scenario) if shown else scenario
    return Template(_TEMPLATE.read_text("utf-8")).substitute(
        title=escape(one.title),
        asked=escape(one.asked),
        kind="fits" if found.pick else "unfit",
        verdict=escape(first),
        table="\n".join(_rows(plans, scenario)),
        drawing=_drawing(plans, found),
        assumed="".join(f"<li>{escape(text)}</li>" for text in _assumed(base)),
        examined=escape(" ".join(rest)),
        command=escape(one.command),
        stamp=escape(f"{one.dated}, scenario {scenario_hash(scenario)[:12]}"),
    )


def _plans(found: Recommendation) -> list[tuple[str, Answered]]:
    """The plans on the page, under what they are."""
    plans: list[tuple[str, Answered]] = []
    if found.pick is not None:
        plans.append(("Recommended", found.pick))
    elif found.nearest is not None:
        plans.append(("Nearest", found.nearest))
    if found.launched is not None:
        plans.append(("As launched", found.launched))
    if found.enough is not None:
        plans.append(("Enough", found.enough))
    pick = found.pick or found.nearest
    for other in found.alternatives:
        assert pick is not None
        quicker = (other.best.kpis["days"] or 0.0) < (pick.best.kpis["days"] or 0.0)
        plans.append(("Faster" if quicker else "Cheaper", other))
    return plans


def _rows(plans: Sequence[tuple[str, Answered]], scenario: Scenario) -> Iterator[str]:
    for name, one in plans:
        gpus = f"{one.layout.nodes * scenario.cluster.node.gpus:,}"
        figures = (
            ranged(one.best.kpis[key], one.best.intervals.get(key), UNITS[key]) for key in _FIGURES
        )
        left = one.best.headroom_bytes
        spare = "" if left is None else gibibytes(left)
        cells = (name, gpus, one.layout.words, *figures, spare)
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _drawing(plans: Sequence[tuple[str, Answered]], found: Recommendation) -> str:
    """Days of each plan as a dot in its interval, and the deadline as a line."""
    spans = [(name, one.best.kpis["days"], one.best.intervals.get("days")) for name, one in plans]
    drawn = [(name, days, span or (days, days)) for name, days, span in spans if days]
    if not drawn:
        return ""
    deadline = found.asked.goal.days
    most = 1.05 * max([deadline or 0.0, *(span[1] for _, _, span in drawn)])
    height = _ROW * (len(drawn) + 1)

    def x(days: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 10) * days / most

    label = "Days of each plan with its 80 % interval"
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">']
    for place, (name, days, (low, high)) in enumerate(drawn):
        y = _ROW * (place + 0.5)
        parts += [
            f'<text x="{_LEFT - 10}" y="{y + 4}" text-anchor="end">{escape(name)}</text>',
            f'<line x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y}" y2="{y}" class="span"/>',
            f'<circle cx="{x(days):.1f}" cy="{y}" r="5"/>',
        ]
    bottom = height - _ROW / 2
    for days in (0.0, *((deadline,) if deadline else ())):
        at, anchor = f"{x(days):.1f}", "start" if days < most / 2 else "end"
        words = f"asked for: {show(days, 'd')}" if days else "0 d"
        kind = "limit" if days else "axis"
        parts += [
            f'<line x1="{at}" x2="{at}" y1="0" y2="{bottom - 8}" class="{kind}"/>',
            f'<text x="{at}" y="{bottom + 6}" text-anchor="{anchor}">{words}</text>',
        ]
    parts.append("</svg>")
    return "".join(parts)


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
