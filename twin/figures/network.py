"""Network: the cluster by level with the use of its links, groups of ranks on it, collectives, and
whether the all-to-all of experts can hide under kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from twin.figures.charts import PERCENT_TICKS, name_axis
from twin.figures.palette import BACKGROUND, INK, LINKS, Meaning, Theme, swatch
from twin.figures.plotly import (
    Axis,
    Bars,
    Dots,
    Drawing,
    Frame,
    Line,
    Mark,
    Note,
    Picture,
    Row,
    draw,
    lowered,
)
from twin.loading.files import table
from twin.reports.network_map import LEVELS, NetworkMap
from twin.reports.network_use import Collective, LinkLoad, NetworkUse
from twin.reports.network_use import sentence as use_sentence
from twin.reports.overlap import KIND_WORDS, LINK_WORDS, Demand, LayerOverlap, sentence
from twin.reports.table import digits, gibibytes, rate, show

ROLES: Final[dict[str, tuple[str, str, float]]] = table(__name__, "ROLES")
"""What stands at each level: its name, its shape and its pixels."""
GROUP_WORDS: Final[dict[str, str]] = table(__name__, "GROUP_WORDS")
"""The groups that can be shown, in words."""
MEANING: Final[dict[str, Meaning]] = table(__name__, "MEANING")
"""The colour of each axis of parallelism."""
USE_STEPS: Final = ((0.0, "unused"), (0.001, "under 20 %"), (0.2, "20 to 50 %"), (0.5, "over 50 %"))
"""Shares of a link's capacity from which on it is drawn so, in words."""
_READING: Final = (
    "The more a step uses a class of link, the thicker it is; shares are of what one link can "
    "carry in one direction, averaged over ranks."
)
_WIDTHS: Final = (0.6, 1.4, 2.6, 4.4)
_LINK_WORDS: Final = table(__name__, "_LINK_WORDS")
_LINK_LEVEL: Final = {"nvlink": 0.5, "pcie": 1.5, "dram": 2.5, "nic": 4.5, "leaf": 5.5}
"""Height at which a class of link is labelled."""


def topology(
    network: NetworkMap, use: NetworkUse, group: str | None, name: str, theme: Theme
) -> Picture:
    """A few nodes and the switches above them; links by use, and the GPUs of the first rank's
    `group` (a key of `network.groups`; None shows none)."""
    drawings: list[Drawing] = [*_links(network, use, theme), *_places(network, group, theme)]
    width = max(vertex.x for vertex in network.vertices)
    top = max(vertex.level for vertex in network.vertices)
    frame = Frame(
        x=Axis(span=(-1.2, width + 1.0), ticks=(), grid=False),
        y=Axis(span=(-1.0, top + 0.5), ticks=_level_ticks(network), grid=False),
        height=480,
        theme=theme,
        notes=(*_link_notes(use, width, theme), *_node_notes(network, theme)),
    )
    return Picture(
        title=f"{name}: {_busiest(use)}",
        caption=" ".join([*_drawn_part(network), *_group_note(network, group)]),
        figure=draw(drawings, frame),
        table=_link_table(use),
    )


def _links(network: NetworkMap, use: NetworkUse, theme: Theme) -> list[Line]:
    """One line per step of use: colour and width say it."""
    lines: list[Line] = []
    for step, (_, words) in enumerate(USE_STEPS):
        edges = [edge for edge in network.edges if _step(use.link(edge.link)) == step]
        if not edges:
            continue
        ends = [(network.vertices[edge.a], network.vertices[edge.b]) for edge in edges]
        x = [value for a, b in ends for value in (a.x, b.x, np.nan)]
        y = [value for a, b in ends for value in (float(a.level), float(b.level), np.nan)]
        known = f"Links, {words}" + (" used" if step else "")
        lines.append(Line(x, y, LINKS[theme][step], known, _WIDTHS[step]))
    return lines


def _step(link: LinkLoad | None) -> int:
    if link is None:
        return 0
    return max(at for at, (least, _) in enumerate(USE_STEPS) if link.use >= least)


def _places(network: NetworkMap, group: str | None, theme: Theme) -> list[Dots]:
    """GPUs, NICs and switches; the members of the group are filled with its colour."""
    members = network.groups.get(group, frozenset[int]()) if group else frozenset[int]()
    places: list[Dots] = []
    for role in dict.fromkeys(vertex.role for vertex in network.vertices):
        own = [at for at, vertex in enumerate(network.vertices) if vertex.role == role]
        rest = [at for at in own if at not in members]
        places.append(_dots(network, rest, role, (BACKGROUND[theme], INK[theme])))
    if group and members:
        look = swatch(MEANING[group], theme)
        words = f"GPU of the {GROUP_WORDS[group]} of rank 0"
        places.append(_dots(network, sorted(members), "gpu", (look.fill, INK[theme]), words))
    return places


def _dots(
    network: NetworkMap, own: list[int], role: str, look: tuple[str, str], name: str = ""
) -> Dots:
    words, symbol, size = ROLES.get(role, (role, "diamond", 12.0))
    vertices = [network.vertices[at] for at in own]
    return Dots(
        name=name,
        x=[vertex.x for vertex in vertices],
        y=[float(vertex.level) for vertex in vertices],
        fill=look[0],
        line=look[1],
        symbol=symbol,
        size=size,
        detail=[[vertex.name] for vertex in vertices],
        hover=f"{words} %{{customdata[0]}}",
        outline=1.4,
    )


def _level_ticks(network: NetworkMap) -> tuple[tuple[float, str], ...]:
    found = {vertex.level: vertex.role for vertex in network.vertices}
    return tuple(
        (float(level), ROLES.get(role, (role,))[0]) for level, role in sorted(found.items())
    )


def _link_notes(use: NetworkUse, width: float, theme: Theme) -> list[Note]:
    """Beside each level: the link's use and capacity."""
    return [
        Note(width + 0.9, _LINK_LEVEL[link.key], _use_words(link), INK[theme])
        for link in use.links
        if link.key in _LINK_LEVEL
    ]


def _use_words(link: LinkLoad) -> str:
    use, most = show(link.use, "%"), rate(link.capacity)
    return f"{_LINK_WORDS[link.key]}<br><b>{use}</b><br>of {most}"  # short, for a phone's width


def _node_notes(network: NetworkMap, theme: Theme) -> list[Note]:
    """Under each drawn node: its number."""
    notes: list[Note] = []
    for node in network.nodes:
        places = [vertex.x for vertex in network.vertices if vertex.node == node]
        middle = (min(places) + max(places)) / 2
        notes.append(Note(middle, -0.7, f"node {node}", INK[theme], "center"))
    return notes


def _drawn_part(network: NetworkMap) -> list[str]:
    """How much of the cluster is drawn, and how to read it."""
    words = (
        f"Drawn are {len(network.nodes)} of {network.of_nodes:,} nodes, which all look alike"
        if len(network.nodes) < network.of_nodes
        else "All nodes are drawn"
    )
    if network.gpus < network.of_gpus:
        words += f", with {network.gpus} of {network.of_gpus} GPUs each"
    if 0 < network.spines < network.of_spines:
        words += f", and {network.spines} of {network.of_spines} switches above the leaves"
    return [f"{words}.", _READING]


def _group_note(network: NetworkMap, group: str | None) -> list[str]:
    if not group or group not in network.groups:
        return []
    shown, size = len(network.groups[group]), network.sizes[group]
    return [f"Filled: the {GROUP_WORDS[group]} of rank 0, {shown} of its {size:,} GPUs drawn."]


def _busiest(use: NetworkUse) -> str:
    link = max(use.links, key=lambda one: one.use)
    return (
        f"the busiest class of link is the {link.spoken}, {show(link.use, '%')} of its capacity "
        "over the step"
    )


def _link_table(use: NetworkUse) -> tuple[Row, ...]:
    rows: list[Row] = []
    for link in use.links:
        rows.append(
            {
                "Link": link.label,
                "In use": show(link.busy, "%"),
                "Bytes per step": gibibytes(link.bytes),
                "While in use": rate(link.rate),
                "Carries at most": rate(link.capacity),
                "Capacity used": show(link.use, "%"),
            }
        )
        rows += [
            dict.fromkeys(rows[-1], "")
            | {"Link": f"of it {name}", "Bytes per step": gibibytes(size)}
            for name, size in link.parts.items()
        ]
    return tuple(rows)


def links(use: NetworkUse, name: str, theme: Theme) -> Picture:
    """Every class of link: the share of the step in which it is in use, and of that what it would
    take at full rate."""
    labels = [link.label for link in use.links]
    full = swatch("compute", theme)
    bars = [
        Bars(
            name="At full rate",
            swatch=full,
            x=[100 * link.use for link in use.links],
            y=labels,
            hover="%{y}: %{x:.2~f} % of its capacity over the step",
        ),
        Bars(
            name="In use below full rate, or on its way",
            swatch=replace(full, pattern="/"),
            x=[100 * max(0.0, link.busy - link.use) for link in use.links],
            y=labels,
            text=[_link_text(link) for link in use.links],
            outside=True,
            hover="%{y}: %{text}",
        ),
    ]
    longest = max((max(link.busy, link.use) for link in use.links), default=1.0)
    frame = Frame(
        x=Axis(
            "Percent of the step",
            span=(0.0, max(10.0, 104 * longest)),
            ticks=PERCENT_TICKS,
        ),
        y=name_axis(labels),
        height=60 + 40 * max(len(labels), 1),
        theme=theme,
    )
    return Picture(
        title=f"{name}: {lowered(use_sentence(use)).rstrip('.')}",
        caption=(
            "Each bar is one class of link, averaged over links and directions: busy time, and the "
            "same bytes at full rate. NIC traffic and copies to the host also cross PCIe."
        ),
        figure=draw(bars, frame),
        table=_link_table(use),
    )


def _link_text(link: LinkLoad) -> str:
    if link.rate is None:
        return "nothing"
    return f"{show(link.busy, '%')} in use,<br>{rate(link.rate)} of {rate(link.capacity)}"


def collectives(use: NetworkUse, name: str, theme: Theme) -> Picture:
    """Seconds of every collective per step, hidden beside kernels and exposed, one rank's mean."""
    shown = use.collectives
    labels = [words(one) for one in shown]
    bars = [
        *(_exposed(shown, axis, theme) for axis in dict.fromkeys(one.axis for one in shown)),
        Bars(
            name="Hidden beside kernels",
            swatch=swatch("hidden", theme),
            x=[one.total_seconds * (1 - one.exposed) for one in shown],
            y=labels,
            text=[_text(one) for one in shown],
            outside=True,
            hover="%{y}: %{x:.3~s}s hidden",
        ),
    ]
    longest = max((one.total_seconds for one in shown), default=1.0)
    frame = Frame(
        x=Axis("Seconds per step on one rank", span=(0.0, 1.04 * longest)),
        y=name_axis(()),
        height=60 + 40 * max(len(shown), 1),
        theme=theme,
    )
    return Picture(
        title=f"{name}: {_longest(use)}",
        caption=(
            "Each bar is all calls of one collective in a step, averaged over ranks; beside it the "
            "number of calls and the bus bandwidth as nccl-tests defines it."
        ),
        figure=draw(bars, frame),
        table=tuple(_row(one) for one in shown),
    )


def _exposed(shown: Sequence[Collective], axis: str, theme: Theme) -> Bars:
    """The exposed seconds of the collectives of one axis of parallelism."""
    own = [one for one in shown if one.axis == axis]
    return Bars(
        name=f"{axis.capitalize()}, exposed",
        swatch=swatch(MEANING.get(axis, "other"), theme),
        x=[one.total_seconds * one.exposed for one in own],
        y=[words(one) for one in own],
        detail=[[show(one.exposed, "%")] for one in own],
        hover="%{y}: %{x:.3~s}s exposed, %{customdata[0]} of its time",
    )


def words(one: Collective) -> str:
    """A collective's name as people read it."""
    return one.name.replace("_", " ").capitalize()


def _text(one: Collective) -> str:
    speed = f",<br>{rate(one.busbw)}" if one.busbw else ""
    calls = f"{one.calls:,.0f} call{'' if round(one.calls) == 1 else 's'}"
    return f"{show(one.total_seconds, 's')}, {calls}{speed}"


def _longest(use: NetworkUse) -> str:
    if not use.collectives:
        return "nothing is communicated"
    first = max(use.collectives, key=lambda one: one.total_seconds * one.exposed)
    return (
        f"{words(first).lower()} is exposed longest, "
        f"{show(first.total_seconds * first.exposed, 's')} per step and rank, "
        f"{show(first.exposed, '%')} of its time"
    )


def _row(one: Collective) -> Row:
    return {
        "Collective": words(one),
        "Axis": one.axis,
        "Group": one.group,
        "Calls": f"{one.calls:,.0f}",
        "Payload": gibibytes(one.payload) if one.payload else "unknown",
        "By NVLink": gibibytes(one.nvlink_bytes),
        "By NIC": gibibytes(one.nic_bytes),
        "Alone": show(one.alone_seconds, "s"),
        "As it ran": show(one.seconds, "s"),
        "Exposed": show(one.exposed, "%"),
        "algbw": rate(one.algbw),
        "busbw": rate(one.busbw),
    }


_KERNELS: Final[tuple[tuple[str, str, Meaning], ...]] = (
    ("Forward", "forward", "forward"),
    ("Recomputation", "recompute", "recompute"),
    ("Backward (input)", "backward_input", "backward"),
    ("Weight gradients", "backward_weight", "weight"),
)
"""The parts of a layer's kernels: name, field of the window, colour."""
_BAR: Final = 30
"""Pixels of one bar."""


def windows(found: Sequence[LayerOverlap], name: str, theme: Theme) -> Picture:
    """Per kind of layer: its kernels, and its all-to-all on each link, in ms per micro-batch."""
    longest = max(max(one.window.total, one.demand.alone) for one in found) if found else 1.0
    marks = [
        Mark(1e3 * one.window.hiding, f"can hide {_ms(one.window.hiding)}", INK[theme])
        for one in found
        if one.demand.alone and one.window.hiding
    ]
    frame = Frame(
        x=Axis("Milliseconds per micro-batch", span=(0.0, 1.04e3 * longest)),
        y=name_axis(_layer_rows(found)),
        height=70 + _BAR * len(_layer_rows(found)),
        theme=theme,
        marks=tuple(marks),
    )
    return Picture(
        title=f"{name}: {lowered(sentence(found)).rstrip('.')}",
        caption=(
            "One layer and micro-batch on one rank. Work left of the line can hide the "
            "all-to-all. What a link's bar takes beyond it is exposed."
        ),
        figure=draw([*_kernel_bars(found, theme), *_demands(found, theme)], frame),
        table=tuple(_layer_cells(one) for one in found),
    )


def _layer_rows(found: Sequence[LayerOverlap]) -> list[str]:
    """The bars from top to bottom."""
    rows: list[str] = []
    for one in found:
        rows.append(_layer(one, "kernels"))
        if one.demand.alone:
            rows += [_layer(one, LINK_WORDS[link]) for link in ("nic", "nvlink")]
    return rows


def _layer(one: LayerOverlap, what: str) -> str:
    return f"{KIND_WORDS[one.kind]} layer, {what}"


def _kernel_bars(found: Sequence[LayerOverlap], theme: Theme) -> list[Drawing]:
    bars: list[Drawing] = []
    for label, field, meaning in _KERNELS:
        sizes = [getattr(one.window, field) for one in found]
        if any(sizes):
            bars.append(
                Bars(
                    name=label,
                    swatch=swatch(meaning, theme),
                    x=[1e3 * size for size in sizes],
                    y=[_layer(one, "kernels") for one in found],
                    text=[_ms(size) if size else "" for size in sizes],
                    hover=f"{label}: %{{x:.3~f}} ms",
                )
            )
    return bars


def _demands(found: Sequence[LayerOverlap], theme: Theme) -> list[Drawing]:
    """The bytes of dispatch and combine through one port of each link, forward then backward."""
    asking = [one for one in found if one.demand.alone]
    bars: list[Drawing] = []
    for label, field, pattern in (("forward", "forward", ""), ("backward", "backward", "-")):
        pairs = [(one, link) for one in asking for link in ("nic", "nvlink")]
        sizes = [_part(one, field).links[link] for one, link in pairs]
        look = replace(swatch("expert", theme), pattern=pattern)
        last = field == "backward"
        totals = [_ms(one.demand.links[link]) for one, link in pairs]
        bars.append(
            Bars(
                name=f"All-to-all, {label}",
                swatch=look,
                x=[1e3 * size for size in sizes],
                y=[_layer(one, LINK_WORDS[link]) for one, link in pairs],
                text=totals if last else [""] * len(pairs),
                outside=last,
                hover=f"All-to-all, {label}: %{{x:.3~f}} ms",
            )
        )
    return bars if asking else []


def _part(one: LayerOverlap, field: str) -> Demand:
    return one.forward if field == "forward" else one.backward


def _layer_cells(one: LayerOverlap) -> Row:
    window = one.window
    ratio = "nothing to hide" if not one.demand.alone else "no window"
    if one.ratio:
        ratio = f"{digits(100 * one.ratio)} %"
    return {
        "Layer": f"{KIND_WORDS[one.kind]} ({one.layers})",
        **{label: _ms(getattr(window, field)) for label, field, _ in _KERNELS},
        "Can hide": _ms(window.hiding),
        **{words: _ms(one.demand.links[link]) for link, words in LINK_WORDS.items()},
        "All-to-all alone": _ms(one.demand.alone),
        "Of the window": ratio,
    }


def _ms(seconds: float) -> str:
    return f"{digits(1e3 * seconds)} ms"


assert set(LEVELS) == set(ROLES), "every level of a drawing has a shape"
