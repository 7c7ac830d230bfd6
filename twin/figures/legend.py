"""The legend of a figure as HTML, which breaks its rows at any width: plotly lays its own out for
one width, and covers the bars of a narrower window."""

from __future__ import annotations

from html import escape
from typing import Any

from twin.figures.plotly import Figure, plain

_SWATCH = "display:inline-block;width:11px;height:11px;margin-right:5px"
_HATCH = "repeating-linear-gradient({}deg,transparent 0 2px,{} 2px 3.5px)"


def legend(figure: Figure) -> str:
    """The names of the figure's traces beside their colours; empty where it has no legend."""
    document = plain(figure)
    if not document["layout"].get("showlegend"):
        return ""
    looks = {
        one["name"]: _look(one)
        for one in document["data"]
        if one.get("name") and one.get("showlegend") is not False
    }
    if not looks:
        return ""
    entries = "".join(
        f'<span style="white-space:nowrap"><span style="{_SWATCH};{look}"></span>'
        f"{escape(name.replace('<br>', ' '))}</span>"
        for name, look in looks.items()
    )
    style = "display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px"
    return f'<div style="{style}">{entries}</div>'


def bare(figure: Figure) -> Figure:
    """A copy of the figure without its legend and the room for it."""
    document = plain(figure)
    layout = document["layout"]
    room = layout.get("meta", {}).get("legend", 0)
    layout["showlegend"] = False
    above = layout["margin"]["t"]
    layout["margin"]["t"] = max(10, above - room)
    layout["height"] += layout["margin"]["t"] - above
    return Figure(document)


def _look(trace: dict[str, Any]) -> str:
    """The colours of a trace: a line, a mark, or a filled box with its hatch."""
    mark, line = trace.get("marker", {}), trace.get("line", {})
    if trace["type"] == "scatter" and trace.get("mode") == "lines" and not trace.get("fillcolor"):
        return f"height:0;border-top:3px {_stroke(line)} {line.get('color')};vertical-align:middle"
    fill = trace.get("fillcolor") or mark.get("color")
    edge = line.get("color") or mark.get("line", {}).get("color") or fill
    pattern: dict[str, Any] = trace.get("fillpattern") or mark.get("pattern") or {}
    shape, ink = pattern.get("shape"), pattern.get("fgcolor", "#000000")
    hatch = _HATCH.format(135 if shape == "/" else 45, ink)
    hatch = f"background-image:{hatch};" if shape else ""
    round_ = "border-radius:50%;" if trace["type"] == "scatter" and mark else ""
    return f"background-color:{fill};{hatch}{round_}border:1px solid {edge}"


def _stroke(line: dict[str, Any]) -> str:
    return {"dash": "dashed", "dot": "dotted"}.get(line.get("dash", ""), "solid")
