"""A decision on one page to send: the question, the recommended plan and its alternatives with
their intervals, what must be true, what was assumed, what was not examined, and how to ask again.

The page is self-contained and has no script: it opens on a telephone, and prints on one sheet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

_TEMPLATE: Final = Path(__file__).with_suffix(".html")
_WIDTH, _LEFT, _ROW = 640, 110, 26
"""Of the drawing of intervals, in pixels."""
DRAWN: Final = "Days of each plan with its 80 % interval"
"""What the drawing shows."""
_STYLE: Final = 'font-size="13" font-family="system-ui, sans-serif" style="max-width: 640px"'
_SPAN: Final = 'stroke="#0072B2" stroke-width="6" stroke-linecap="round" opacity="0.4"'
_DOT: Final = 'r="5" fill="#0072B2"'
_LINES: Final = {
    "axis": 'stroke="#8c959f"',
    "limit": 'stroke="#D55E00" stroke-width="2" stroke-dasharray="5 4"',
}


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
    overrides: Mapping[str, Any]
    """The layout, as `--set` takes it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the page says, in plain data."""

    title: str
    asked: str
    """the question in words"""
    met: bool
    headline: str
    """the decision in one line: GPUs, days and cost"""
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

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Decision:
        """The decision of its JSON."""
        texts = {key: tuple(data[key]) for key in ("conditions", "assumed", "examined")}
        plans = tuple(_plan(one) for one in data["plans"])
        fields: dict[str, Any] = {**data, **texts, "plans": plans}
        return cls(**fields)


def _plan(data: Mapping[str, Any]) -> NamedPlan:
    fields: dict[str, Any] = {**data, "days": tuple(data["days"])}
    return NamedPlan(**fields)


def page(one: Decision) -> str:
    """The document; every text in it is escaped."""
    return Template(_TEMPLATE.read_text("utf-8")).substitute(
        title=escape(one.title),
        asked=escape(one.asked),
        kind="fits" if one.met else "unfit",
        headline=escape(one.headline),
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
    items = (re.sub("`(.+?)`", r"<code>\1</code>", escape(text)) for text in texts)
    return "".join(f"<li>{item}</li>" for item in items)


def drawing(plans: Sequence[NamedPlan], deadline: float | None, ink: str = "currentColor") -> str:
    """Days of each plan as a dot in its interval, and the deadline as a line, as SVG. `ink` is the
    colour of its text."""
    if not plans:
        return ""
    most = 1.05 * max([deadline or 0.0, *(plan.days[2] for plan in plans)])
    height = _ROW * (len(plans) + 1)

    def x(days: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 10) * days / most

    head = f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{DRAWN}" fill="{ink}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {head} {_STYLE}>']
    for place, plan in enumerate(plans):
        low, days, high = plan.days
        y = _ROW * (place + 0.5)
        parts += [
            f'<text x="{_LEFT - 10}" y="{y + 4}" text-anchor="end">{escape(plan.name)}</text>',
            f'<line x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y}" y2="{y}" {_SPAN}/>',
            f'<circle cx="{x(days):.1f}" cy="{y}" {_DOT}/>',
        ]
    bottom = height - _ROW / 2
    for days in (0.0, *((deadline,) if deadline else ())):
        at, anchor = f"{x(days):.1f}", "start" if days < most / 2 else "end"
        words = f"deadline: {days:g} d" if days else "0 d"
        kind = "limit" if days else "axis"
        parts += [
            f'<line x1="{at}" x2="{at}" y1="0" y2="{bottom - 8}" {_LINES[kind]}/>',
            f'<text x="{at}" y="{bottom + 6}" text-anchor="{anchor}">{words}</text>',
        ]
    parts.append("</svg>")
    return "".join(parts)
