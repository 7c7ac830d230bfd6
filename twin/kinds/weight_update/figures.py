"""A weight update as it ran: what each stage did when, what the time went to, and what other
pipelines would take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from twin.figures.charts import PERCENT_TICKS, Ranked, View, name_axis, ranking
from twin.figures.palette import Meaning, Theme, swatch
from twin.figures.plotly import Axis, Bars, Frame, Picture, capital, draw
from twin.kinds.weight_update.plan import STAGES, Stage, UpdateProgram, UpdateTrace
from twin.kinds.weight_update.report import WORDS, Alternative, UpdateReport, alternatives, decimal
from twin.loading.files import table
from twin.reports.table import digits, duration, gibibytes, show

if TYPE_CHECKING:
    from twin.kinds.base import Run

_MEANING: Final[dict[Stage, Meaning]] = table(__name__, "_MEANING")
_SPANS: Final = 400
"""Bars of one stage; where there would be more, those of a round are one."""
_LINKS: Final[dict[str, tuple[str, Meaning]]] = table(__name__, "_LINKS")


def views(run: Run) -> Iterator[View]:
    """Every figure of a weight update."""
    report = run.report
    yield View(
        "Summary",
        "Where the update goes",
        "timeline",
        lambda theme, _: timeline(report, run.program, run.trace, theme),
    )
    yield View(
        "Summary",
        "Other pipelines",
        "pipelines",
        lambda theme, _: pipelines(alternatives(run.scenario, report), theme),
    )
    yield View("Summary", "Links", "links", lambda theme, _: link_use(report, theme))


def facts(report: UpdateReport) -> str:
    """The size of an update, in one line."""
    travel = report.travel
    return (
        f"{decimal(travel.checkpoint_bytes)} in {travel.tensors:,} tensors; "
        f"{travel.buckets:,} buckets in {rounds(report)}; {travel.buffers} buffers of "
        f"{gibibytes(travel.buffer_bytes)}; each GPU receives {gibibytes(travel.received_bytes)} "
        f"and keeps {gibibytes(travel.held_bytes)}"
    )


def timeline(
    report: UpdateReport, program: UpdateProgram, trace: UpdateTrace, theme: Theme
) -> Picture:
    """Every stage's work over time, one row per stage; bars of one row with gaps between rounds."""
    spans = _spans(program, trace)
    shown: list[Stage] = [stage for stage in STAGES if spans[stage]]
    bars = [
        Bars(
            name=capital(WORDS[stage]),
            swatch=swatch(_MEANING[stage], theme),
            x=[(end - start) / 1e9 for start, end, _ in spans[stage]],
            base=[start / 1e9 for start, _, _ in spans[stage]],
            y=[capital(WORDS[stage])] * len(spans[stage]),
            hover="%{customdata[0]}<br>%{customdata[1]}, from %{base:.3f} s",
            detail=[
                [f"{capital(WORDS[stage])}, round {turn + 1}", duration((end - start) / 1e9)]
                for start, end, turn in spans[stage]
            ],
            outline=0.5,
        )
        for stage in shown
    ]
    frame = Frame(
        x=Axis("Seconds", span=(0.0, report.update_ns / 1e9)),
        y=name_axis(capital(WORDS[stage]) for stage in shown),
        height=70 + 44 * len(shown),
        theme=theme,
        legend=False,
    )
    return Picture(
        title=_finding(report),
        caption=f"Each bar is a bucket, or a round of all ranks; {report.travel.buckets:,} buckets "
        f"in {rounds(report)}. Rows that work at the same time overlap.",
        figure=draw(bars, frame),
        table=tuple(
            {
                "Stage": capital(WORDS[stage]),
                "Takes": duration(report.stages[stage].exposed_seconds),
                "Share of the update": f"{digits(100 * ns / report.update_ns)} %",
                "At work": duration(report.stages[stage].busy_seconds),
            }
            for stage, ns in report.breakdown_ns.items()
            if report.stages[stage].busy_seconds
        ),
    )


def rounds(report: UpdateReport) -> str:
    """How many rounds an update takes, in words."""
    many = report.travel.rounds
    return f"{many} round{'' if many == 1 else 's'}"


def pipelines(others: Sequence[Alternative], theme: Theme) -> Picture:
    """The same update by every pipeline."""
    best = min(others, key=lambda one: one.seconds)
    rows = [
        Ranked(
            _name(one),
            one.seconds,
            swatch("achieved" if one.change is None else "ideal", theme),
            _told(one),
        )
        for one in others
    ]
    x = Axis("Seconds", span=(0.0, 1.04 * max(one.seconds for one in others)))
    return Picture(
        title=f"{_stages_compared(others)}\nThe fastest is {_name(best).lower()}: "
        f"{duration(best.seconds)}",
        caption="In three stages, copies from the host run beside broadcasts; both enter GPUs over "
        "PCIe. Point to point is a bound of the links: it needs a map of both layouts, and writes "
        "into the engine's weights. The bar without a change is this scenario.",
        figure=ranking(rows, x, theme),
        table=tuple(
            {
                "Pipeline": _name(one),
                "Update": duration(one.seconds),
                "Change": "" if one.change is None else f"{digits(100 * one.change)} %",
                "Fits": "yes" if one.fits else "no",
            }
            for one in others
        ),
    )


def link_use(report: UpdateReport, theme: Theme) -> Picture:
    """How busy each class of link is, mean of all of it."""
    rows = [(*_LINKS[link], use) for link, use in report.links.items()]
    busiest = max(rows, key=lambda row: row[2].use)
    bars = [
        Ranked(
            name,
            100 * use.use,
            swatch(meaning, theme),
            f"{show(use.use, '%')}, {gibibytes(use.bytes)}",
            f"{name}: {show(use.use, '%')} busy, {gibibytes(use.bytes)}",
        )
        for name, meaning, use in rows
    ]
    x = Axis("Percent of the update", span=(0.0, 104.0), ticks=PERCENT_TICKS)
    return Picture(
        title=f"The busiest class of link is the {busiest[0]}, {show(busiest[2].use, '%')} of the "
        "update",
        caption="Mean of all links of a class. A broadcast keeps few of a node's NICs busy, and "
        "those all of the time.",
        figure=ranking(bars, x, theme, row=32),
        table=tuple(
            {"Link": name, "Use": show(use.use, "%"), "Bytes of one": gibibytes(use.bytes)}
            for name, _, use in rows
        ),
    )


def _finding(report: UpdateReport) -> str:
    bound = report.bound
    return (
        f"{capital(WORDS[bound.stage])} take {digits(100 * bound.share)} % of "
        f"{duration(report.update_ns / 1e9)}: {bound.reason}"
    )


def _spans(program: UpdateProgram, trace: UpdateTrace) -> dict[Stage, list[tuple[int, int, int]]]:
    """Start, end and round of every bar; of copies and sends, which many ranks do at once, those
    of a round that touch are one."""
    found: dict[Stage, list[tuple[int, int, int]]] = {stage: [] for stage in STAGES}
    by_round: defaultdict[tuple[Stage, int], list[tuple[int, int]]] = defaultdict(list)
    for one, start, end in zip(program.operations, trace.start, trace.end, strict=True):
        if one.stage is not None and end > start:
            by_round[one.stage, one.round].append((start, end))
    for (stage, turn), spans in by_round.items():
        joined = _joined(sorted(spans), touching=len(spans) > _SPANS or stage in _AT_ONCE)
        found[stage] += [(start, end, turn) for start, end in joined]
    return found


_AT_ONCE: Final[tuple[Stage, ...]] = ("read", "host_copy", "fetch", "send")


def _joined(spans: Sequence[tuple[int, int]], *, touching: bool) -> list[tuple[int, int]]:
    """The spans; those that overlap or touch are one where `touching` ones are joined."""
    found: list[tuple[int, int]] = []
    for start, end in spans:
        if touching and found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _name(one: Alternative) -> str:
    method = {"broadcast": "Broadcast", "p2p": "Point to point"}[one.method]
    return f"{method}, {one.stages} stages"


def _told(one: Alternative) -> str:
    change = (
        "" if one.change is None else f" ({'+' if one.change >= 0 else ''}{100 * one.change:.3g} %)"
    )
    return f"{duration(one.seconds)}{change}{'' if one.fits else ',<br>does not fit'}"


def _stages_compared(others: Sequence[Alternative]) -> str:
    """What a third stage is worth for broadcasts."""
    times = {one.stages: one.seconds for one in others if one.method == "broadcast"}
    if len(times) < 2:
        return "There is one pipeline for this"
    gain = 1 - times["three"] / times["two"]
    if abs(gain) < 0.005:
        return "A third stage gains nothing"
    return (
        f"A third stage makes it {digits(100 * abs(gain))} % {'faster' if gain > 0 else 'slower'}"
    )
