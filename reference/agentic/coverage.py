"""The coverage of the tools: a treemap of categories, applications and tools, and a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from reference.agentic.tool_spec import ToolSpec

_WIDTH: Final = 1600.0
_HEIGHT: Final = 1000.0
_COLOURS: Final = {
    "read": "#4c78a8",
    "create": "#54a24b",
    "update": "#eeca3b",
    "delete": "#e45756",
    "unknown": "#9d9d9d",
}


class Box(NamedTuple):
    """A rectangle of the map."""

    x: float
    y: float
    width: float
    height: float

    def inner(self, head: float) -> Box:
        """The area below a heading."""
        width, height = max(0.0, self.width - 2), max(0.0, self.height - head - 1)
        return Box(self.x + 1, self.y + head, width, height)


def coverage_table(tools: Iterable[ToolSpec]) -> str:
    """Categories with their applications, tools and effects, as Markdown."""
    lines = ["| category | applications | tools | read | create | update | delete |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name, own in sorted(_grouped(tools, "category").items()):
        effects = Counter(tool.effect for tool in own)
        counts = [str(effects[effect]) for effect in ("read", "create", "update", "delete")]
        applications = ", ".join(
            f"{key} ({len(some)})" for key, some in sorted(_grouped(own, "application").items())
        )
        lines.append(f"| {name} | {applications} | {len(own)} | {' | '.join(counts)} |")
    return "\n".join(lines) + "\n"


def coverage_svg(tools: Iterable[ToolSpec]) -> str:
    """The treemap; each area has a title."""
    groups = _grouped(tools, "category")
    names = sorted(groups, key=lambda name: (-len(groups[name]), name))
    whole = Box(0, 0, _WIDTH, _HEIGHT)
    parts: list[str] = []
    for name, box in zip(names, _cut(whole, [len(groups[name]) for name in names]), strict=True):
        parts += _category(name, groups[name], box)
    legend = "".join(
        f'<rect x="{at * 110 + 4}" y="{_HEIGHT + 6}" width="12" height="12" fill="{colour}"/>'
        f'<text x="{at * 110 + 20}" y="{_HEIGHT + 16}">{effect}</text>'
        for at, (effect, colour) in enumerate(_COLOURS.items())
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {_HEIGHT + 24:g}" '
        'font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}{legend}</svg>\n'
    )


def _category(name: str, tools: Sequence[ToolSpec], box: Box) -> list[str]:
    parts = [_rect(box, "#f2f2f2", f"{name}: {len(tools)} tools"), _label(box, name, 11, bold=True)]
    groups = _grouped(tools, "application")
    names = sorted(groups)
    inside = _cut(box.inner(15), [len(groups[name]) for name in names])
    for application, area in zip(names, inside, strict=True):
        own = sorted(groups[application], key=lambda tool: (tool.effect, tool.name))
        parts.append(_rect(area, "#ffffff", f"{application}: {len(own)} tools"))
        parts.append(_label(area, application, 8))
        for tool, cell in zip(own, _cut(area.inner(10), [1] * len(own)), strict=True):
            parts.append(_rect(cell, _COLOURS[tool.effect], f"{tool.name} ({tool.effect})"))
    return parts


def _rect(box: Box, fill: str, title: str) -> str:
    return (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'fill="{fill}" stroke="#fff" stroke-width="0.8"><title>{escape(title)}</title></rect>'
    )


def _label(box: Box, text: str, size: int, bold: bool = False) -> str:
    most = int(box.width / (size * 0.6))
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{box.x + 2:.1f}" y="{box.y + size:.1f}" font-size="{size}"{weight}>'
        f"{escape(text[:most].replace('_', ' '))}</text>"
    )


def _cut(box: Box, sizes: Sequence[int]) -> list[Box]:
    """The box in parts of these sizes, by repeated halving along the longer side."""
    if len(sizes) <= 1:
        return [box] * len(sizes)
    total, at, left = sum(sizes), 0, 0
    while at < len(sizes) - 1 and (left + sizes[at] <= total / 2 or at == 0):
        left += sizes[at]
        at += 1
    share = left / total
    if box.width >= box.height:
        wide = box.width * share
        first = box._replace(width=wide)
        second = box._replace(x=box.x + wide, width=box.width - wide)
    else:
        high = box.height * share
        first = box._replace(height=high)
        second = box._replace(y=box.y + high, height=box.height - high)
    return [*_cut(first, sizes[:at]), *_cut(second, sizes[at:])]


def _grouped(tools: Iterable[ToolSpec], key: str) -> Mapping[str, list[ToolSpec]]:
    made: dict[str, list[ToolSpec]] = {}
    for tool in tools:
        made.setdefault(getattr(tool, key), []).append(tool)
    return made
