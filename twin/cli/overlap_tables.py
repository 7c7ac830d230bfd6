"""Overlap, links and studies as terminal tables: units everywhere, three significant digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from twin.cli.columns import headed
from twin.explore.study.hidden import LIMIT, HiddenExpert, Trial
from twin.explore.study.influence import Influence
from twin.kinds.base import Fidelity
from twin.reports.breakdown import CAUSE_WORDS
from twin.reports.network_use import LinkLoad, NetworkUse
from twin.reports.numbers import duration, gibibytes, rate, signed_bytes, signed_duration
from twin.reports.overlap import KIND_WORDS, LINK_WORDS, LayerOverlap
from twin.reports.passes import Passes
from twin.reports.report import Report
from twin.reports.table import bar, percent

_MOST: Final = 16
"""Numbers that a tornado lists."""
_LETTERS: Final = 28
"""Letters of an end of a range in the tornado."""


def overlap_table(found: Sequence[LayerOverlap]) -> RenderableType:
    """Window and demand of each kind of layer."""
    title = "One layer and micro-batch, each part alone"
    table = headed(title, "", *(f"{KIND_WORDS[one.kind]} ({one.layers})" for one in found))
    for label, key in (
        ("forward", "forward"),
        ("recomputation", "recompute"),
        ("backward (input)", "backward_input"),
        ("weight gradients", "backward_weight"),
    ):
        table.add_row(label, *(duration(getattr(one.window, key)) for one in found))
    window = [duration(one.window.hiding) for one in found]
    table.add_row("window: can hide an all-to-all", *window)
    table.add_section()
    for link, words in LINK_WORDS.items():
        for label, part in (("forward", "forward"), ("backward", "backward")):
            cells = [_time(getattr(one, part).links[link]) for one in found]
            table.add_row(f"{words}, {label}", *cells)
    table.add_row("demand: all-to-all alone", *(_time(one.demand.alone) for one in found))
    table.add_section()
    table.add_row("demand / window", *(_ratio(one) for one in found))
    return table


def _time(seconds: float) -> str:
    return duration(seconds) if seconds else ""


def _ratio(one: LayerOverlap) -> str:
    if not one.demand.alone:
        return "nothing to hide"
    return "no window" if one.ratio is None else f"{one.ratio:.2f}"


def exposure_table(report: Report) -> list[RenderableType]:
    """What is exposed, in the ramp and in the steady state; nothing where that is not known."""
    rows = [(cause, one) for cause, one in report.exposure.items() if report.breakdown_ns[cause]]
    if not rows:
        return []
    table = headed("Exposed, mean over ranks", "", "ramp", "", "steady state", "")
    for cause, one in rows:
        cells = [
            cell
            for ns in (one.ramp_ns, one.steady_ns)
            for cell in (duration(ns / 1e9), percent(ns / report.step_ns))
        ]
        table.add_row(CAUSE_WORDS[cause], *cells)
    table.caption = "ramp: before a rank's first backward and after its last forward"
    table.caption_justify = "left"
    return [table]


def pass_table(found: Sequence[Passes]) -> RenderableType:
    """One row for each kind of chunk."""
    heads = "chunk", "chunks", "forward", "backward", "input", "weights", "pair"
    table = headed("One micro-batch, each pass alone on its rank", *heads)
    for one in found:
        times = one.forward, one.backward, one.backward_input, one.backward_weight
        pair = "" if one.pair is None else duration(one.pair)
        table.add_row(one.layers, str(len(one.chunks)), *map(duration, times), pair)
    note = "pair: a forward beside the whole backward of another micro-batch, block by block"
    return Group(table, Padding(Text(note), (0, 0, 0, 2)))


def link_table(use: NetworkUse) -> RenderableType:
    """Every class of link: how long it is in use, what it carries, and how fast while it does."""
    headings = ("", "in use", "", "carries per step", "while in use", "of at most", "capacity used")
    table = headed("Links, mean of the ranks and of both directions", *headings)
    for link in use.links:
        table.add_row(*_link_row(link))
        for name, size in link.parts.items():
            table.add_row(f"  {name}", "", "", gibibytes(size), "", "", "")
    return table


def _link_row(link: LinkLoad) -> tuple[str, ...]:
    return (
        link.label,
        percent(link.busy),
        bar(link.busy, 10),
        gibibytes(link.bytes),
        rate(link.rate),
        rate(link.capacity),
        percent(link.use),
    )


def hidden_table(found: HiddenExpert) -> RenderableType:
    """Every degree: what shows, and why."""
    title = f"Expert all-to-all by degree; hidden: under {100 * LIMIT:g} % in the steady state"
    headings = (
        "heads",
        "expert",
        "steady",
        "ramp",
        "",
        "step",
        "window",
        "demand",
        "RDMA",
        "memory",
    )
    table = headed(title, *headings)
    for heads in found.heads:
        for one in found.of(heads):
            table.add_row(*_trial_row(one))
        table.add_section()
    notes = [
        "window: kernels of one layer that can hide its all-to-all",
        "demand: that all-to-all alone; RDMA: its bytes through a NIC",
        *dict.fromkeys(f"impossible: {one.impossible}" for one in found.trials if one.impossible),
    ]
    return Group(table, *(Padding(Text(note), (0, 0, 0, 2)) for note in notes))


def _trial_row(one: Trial) -> tuple[str, ...]:
    if one.impossible:
        return str(one.heads), str(one.expert), "impossible"
    return (
        str(one.heads),
        str(one.expert),
        percent(one.steady_share),
        percent(one.ramp_share),
        "hidden" if one.hidden else "shows",
        duration(one.step_seconds),
        duration(one.window_seconds),
        duration(one.demand_seconds),
        duration(one.nic_seconds),
        "fits" if one.fits else "does not fit",
    )


def tornado_table(found: Sequence[Influence], fidelity: Fidelity) -> RenderableType:
    """The change of the step at both ends of each number's range, the widest first."""
    table = headed("At both ends of each range", "number", "low", "step", "high", "step", "memory")
    for one in found[:_MOST]:
        low, high = one.step_seconds
        spare = max(one.headroom_bytes, key=abs)
        table.add_row(
            one.path + ("" if one.range_from != "default" else " *"),
            _short(one.low),
            signed_duration(low),
            _short(one.high),
            signed_duration(high),
            signed_bytes(-spare),
        )
    how = {
        "events": "Steps are played by events.",
        "group": "Steps are played by events, with every rank of one model-parallel group.",
        "fast": "Steps are the fast path's, in which transfers never share links.",
    }[fidelity]
    notes = [how]
    if any(one.range_from == "default" for one in found[:_MOST]):
        notes.append("* no source states a range: 10 % to either side.")
    if len(found) > _MOST:
        notes.append(f"{len(found) - _MOST} more matter less (--json lists all).")
    return Group(table, Padding(Text(" ".join(notes)), (0, 0, 0, 2)))


def _short(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"
