"""Can the experts' all-to-all hide: the kernels of a layer beside what its all-to-all asks of the
links, and what shows of it by degree of expert parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from twin.explore.study.hidden import LIMIT, HiddenExpert, Trial
from twin.explore.study.hidden import sentence as hidden_sentence
from twin.figures.palette import ALARM, INK, Meaning, Swatch, Theme, swatch
from twin.figures.plotly import Axis, Bars, Drawing, Frame, Mark, Picture, Row, draw
from twin.reports.numbers import digits, show
from twin.reports.overlap import KIND_WORDS, LINK_WORDS, Demand, LayerOverlap, sentence

_PASSES: Final[tuple[tuple[str, str, Meaning], ...]] = (
    ("Forward", "forward", "forward"),
    ("Recomputation", "recompute", "recompute"),
    ("Backward (input)", "backward_input", "backward"),
    ("Weight gradients", "backward_weight", "weight"),
)
"""The parts of a layer's kernels: name, field of the window, colour."""
_ROW: Final = 30
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
        y=Axis(names=tuple(_rows(found)), reverse=True, grid=False),
        height=70 + _ROW * len(_rows(found)),
        theme=theme,
        marks=tuple(marks),
    )
    return Picture(
        title=f"{name}: {_lowered(sentence(found)).rstrip('.')}",
        caption=(
            "One layer and micro-batch on one rank, each bar alone. What is left of the line can "
            "hide an all-to-all; what a link's bar reaches beyond it must show."
        ),
        figure=draw([*_kernels(found, theme), *_demands(found, theme)], frame),
        table=tuple(_layer_row(one) for one in found),
    )


def _rows(found: Sequence[LayerOverlap]) -> list[str]:
    """The bars from top to bottom."""
    rows: list[str] = []
    for one in found:
        rows.append(_row(one, "kernels"))
        if one.demand.alone:
            rows += [_row(one, LINK_WORDS[link]) for link in ("nic", "nvlink")]
    return rows


def _row(one: LayerOverlap, what: str) -> str:
    return f"{KIND_WORDS[one.kind]} layer, {what}"


def _kernels(found: Sequence[LayerOverlap], theme: Theme) -> list[Drawing]:
    bars: list[Drawing] = []
    for label, field, meaning in _PASSES:
        sizes = [getattr(one.window, field) for one in found]
        if any(sizes):
            bars.append(
                Bars(
                    name=label,
                    swatch=swatch(meaning, theme),
                    x=[1e3 * size for size in sizes],
                    y=[_row(one, "kernels") for one in found],
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
                y=[_row(one, LINK_WORDS[link]) for one, link in pairs],
                text=totals if last else [""] * len(pairs),
                outside=last,
                hover=f"All-to-all, {label}: %{{x:.3~f}} ms",
            )
        )
    return bars if asking else []


def _part(one: LayerOverlap, field: str) -> Demand:
    return one.forward if field == "forward" else one.backward


def _layer_row(one: LayerOverlap) -> Row:
    window = one.window
    ratio = "nothing to hide" if not one.demand.alone else "no window"
    if one.ratio:
        ratio = f"{digits(100 * one.ratio)} %"
    return {
        "Layer": f"{KIND_WORDS[one.kind]} ({one.layers})",
        **{label: _ms(getattr(window, field)) for label, field, _ in _PASSES},
        "Can hide": _ms(window.hiding),
        **{words: _ms(one.demand.links[link]) for link, words in LINK_WORDS.items()},
        "All-to-all alone": _ms(one.demand.alone),
        "Of the window": ratio,
    }


def degrees(found: HiddenExpert, name: str, theme: Theme) -> Picture:
    """What shows of the all-to-all at each degree, in percent of the step: solid in the steady
    state, hatched in the ramp."""
    shown = [one for one in found.trials if not one.impossible]
    steady = swatch("expert", theme)
    ramp: Swatch = replace(steady, pattern="/")
    rows = [_trial(one) for one in shown]
    longest = max((one.steady_share + one.ramp_share for one in shown), default=1.0)
    bars = [
        Bars(
            name="Steady state",
            swatch=steady,
            x=[100 * one.steady_share for one in shown],
            y=rows,
            hover="%{y}: %{x:.2~f} % in the steady state",
        ),
        Bars(
            name="Ramp: the pipeline fills and drains",
            swatch=ramp,
            x=[100 * one.ramp_share for one in shown],
            y=rows,
            text=[_said(one) for one in shown],
            outside=True,
            hover="%{y}: %{x:.2~f} % in the ramp",
        ),
    ]
    frame = Frame(
        x=Axis("Percent of the step", span=(0.0, max(104.0 * longest, 250 * LIMIT))),
        y=Axis(names=tuple(rows), reverse=True, grid=False),
        height=60 + _ROW * max(len(rows), 1),
        theme=theme,
        marks=(Mark(100 * LIMIT, f"hidden: {100 * LIMIT:g} %", ALARM[theme]),),
    )
    return Picture(
        title="\n".join(f"{name}: {one}" for one in _sentences(found)),
        caption=(
            "The plan at each degree of expert parallelism, for its heads and for twice as many: "
            "more attention hides more. Hidden means that the solid part stays left of the line; "
            "the hatched part has nothing to hide under at any degree."
        ),
        figure=draw(bars, frame),
        table=tuple(_trial_row(one) for one in found.trials),
    )


def _sentences(found: HiddenExpert) -> list[str]:
    return [
        hidden_sentence(HiddenExpert(found.of(heads))).rstrip(".").replace("With", "with", 1)
        for heads in found.heads
    ]


def _trial(one: Trial) -> str:
    return f"{one.heads} heads, expert {one.expert}"


def _said(one: Trial) -> str:
    fits = "" if one.fits else ", does not fit"
    word = "hidden" if one.hidden else "shows"
    return f"{digits(100 * one.steady_share)} % steady, {word}{fits}"


def _trial_row(one: Trial) -> Row:
    head = {"Heads": str(one.heads), "Expert": str(one.expert)}
    if one.impossible:
        return head | {"Steady": f"impossible: {one.impossible}"}
    return head | {
        "Steady": show(one.steady_share, "%"),
        "Ramp": show(one.ramp_share, "%"),
        "Hidden": "yes" if one.hidden else "no",
        "Step": show(one.step_seconds, "s"),
        "Can hide, per layer": _ms(one.window_seconds),
        "All-to-all alone": _ms(one.demand_seconds),
        "RDMA": _ms(one.nic_seconds),
        "NVLink": _ms(one.nvlink_seconds),
        "Memory": "fits" if one.fits else "does not fit",
    }


def _ms(seconds: float) -> str:
    return f"{digits(1e3 * seconds)} ms"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
