"""A decision on one page to send: the question, the recommended plan and its alternatives with
their intervals, what must be true, what was assumed, what was not examined, and how to ask again.

The page is self-contained and has no script: it opens on a telephone, and prints on one sheet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Final

_TEMPLATE: Final = Path(__file__).with_suffix(".html")
_WIDTH, _LEFT, _ROW = 640, 150, 26
"""Of the drawing of intervals, in pixels."""


@dataclass(frozen=True, slots=True)
class NamedPlan:
    """A plan on the page, with its figures in words."""

    name: str
    """What it is: recommended, faster, cheaper, as launched."""
    gpus: int
    layout: str
    figures: Mapping[str, str]
    """By heading; each with its 80 % interval."""
    days: tuple[float, float, float]
    """Of the run: the least of the interval, expected, the most."""
    overrides: Mapping[str, object]
    """The layout, as `--set` takes it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the page says, in plain data."""

    title: str
    asked: str
    """the question in words"""
    met: bool
    verdict: str
    plans: tuple[NamedPlan, ...]
    deadline: float | None
    """days"""
    conditions: tuple[str, ...]
    """what must be true"""
    assumed: tuple[str, ...]
    examined: tuple[str, ...]
    """what was examined, and what was not"""
    command: str
    """asks the same again"""
    stamp: str
    """day and scenario"""


def page(one: Decision) -> str:
    """The document; every text in it is escaped."""
    return Template(_TEMPLATE.read_text("utf-8")).substitute(
        title=escape(one.title),
        asked=escape(one.asked),
        kind="fits" if one.met else "unfit",
        verdict=escape(one.verdict),
        heads="".join(f'<th scope="col">{escape(head)}</th>' for head in rows(one)[0]),
        table="\n".join(_table(rows(one))),
        drawing=drawing(one.plans, one.deadline),
        conditions=_list(one.conditions),
        assumed=_list(one.assumed),
        examined=escape(" ".join(one.examined)),
        command=escape(one.command),
        stamp=escape(one.stamp),
    )


def rows(one: Decision) -> list[dict[str, str]]:
    """The plans as a table: the figures first, the layout last. A decision without a plan has one
    empty row."""
    made = [
        {"Plan": plan.name, "GPUs": f"{plan.gpus:,}", **plan.figures, "Layout": plan.layout}
        for plan in one.plans
    ]
    return made or [{"Plan": "none"}]


def _table(found: Sequence[Mapping[str, str]]) -> Iterator[str]:
    for row in found:
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.values()) + "</tr>"


def _list(texts: Sequence[str]) -> str:
    return "".join(f"<li>{escape(text)}</li>" for text in texts)


def drawing(plans: Sequence[NamedPlan], deadline: float | None) -> str:
    """Days of each plan as a dot in its interval, and the deadline as a line, as SVG."""
    if not plans:
        return ""
    most = 1.05 * max([deadline or 0.0, *(plan.days[2] for plan in plans)])
    height = _ROW * (len(plans) + 1)

    def x(days: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 10) * days / most

    label = "Days of each plan with its 80 % interval"
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">']
    for place, plan in enumerate(plans):
        low, days, high = plan.days
        y = _ROW * (place + 0.5)
        parts += [
            f'<text x="{_LEFT - 10}" y="{y + 4}" text-anchor="end">{escape(plan.name)}</text>',
            f'<line x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y}" y2="{y}" class="span"/>',
            f'<circle cx="{x(days):.1f}" cy="{y}" r="5"/>',
        ]
    bottom = height - _ROW / 2
    for days in (0.0, *((deadline,) if deadline else ())):
        at, anchor = f"{x(days):.1f}", "start" if days < most / 2 else "end"
        words = f"deadline: {days:g} d" if days else "0 d"
        kind = "limit" if days else "axis"
        parts += [
            f'<line x1="{at}" x2="{at}" y1="0" y2="{bottom - 8}" class="{kind}"/>',
            f'<text x="{at}" y="{bottom + 6}" text-anchor="{anchor}">{words}</text>',
        ]
    parts.append("</svg>")
    return "".join(parts)
