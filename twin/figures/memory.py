"""Memory: bytes by stage and category against budget and capacity, the parts of the peak, and one
rank over the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from twin.engine.trace import Trace
from twin.figures.charts import Rung, cascade, name_axis
from twin.figures.palette import ALARM, INK, Meaning, Theme, swatch
from twin.figures.plotly import (
    Area,
    Axis,
    Bars,
    Cells,
    Dots,
    Drawing,
    Frame,
    Line,
    Mark,
    Note,
    Picture,
    Row,
    capital,
    draw,
)
from twin.figures.timeline import repeat_mark, repeat_note
from twin.loading.files import table
from twin.reports.memory_series import WEIGHT_GRADIENTS, MemorySeries, thinned
from twin.reports.report import MemoryReport, StagePeak
from twin.reports.table import gibibytes, show

MEANING: Final[dict[str, Meaning]] = table(__name__, "MEANING")
"""The colour of each category of the ledger; buffers take that of the communication they serve."""

NARROWEST: Final = 350
"""Pixels of width from which on these figures can be read."""
_GIB: Final = 2.0**30
_NAMED: Final = 6
"""Ops whose activations have a bar of their own; the rest is one."""
POINTS = 1_000
"""Points in time that are drawn; beyond, slices of time are drawn at their fullest."""
_READING = (
    "Bytes on one GPU over the step, stacked by category; a pass counts at its fullest instant "
    "from its first kernel to its last. Long series show the fullest instants."
)
_HOST_READING = (
    "Bytes that one GPU keeps in host memory over the step, stacked by category; activations count "
    "from the start of their copy out to the end of their copy back."
)


def stage_memory(memory: MemoryReport, name: str, theme: Theme, reach: float = 0.0) -> Picture:
    """Device bytes on one rank of each stage at its peak, by category, in GiB. The axis covers
    `reach` (bytes) at least, so that figures side by side can share a scale."""
    labels = [_label(stage, memory.budget, theme) for stage in memory.stages]
    bars = _stacks(
        {one: stage.categories for one, stage in zip(labels, memory.stages, strict=True)}, theme
    )
    widest = max(memory.capacity, memory.peak.peak_bytes, reach)
    frame = _stage_frame("GiB on one GPU", widest, len(labels), theme)
    return Picture(
        title=f"{name}: {_finding(memory)}",
        caption=(
            "Each bar is one GPU of a pipeline stage at its peak. Tensors must end left of the "
            "budget line. The rest up to capacity is the runtime's reserve."
        ),
        figure=draw(bars, replace(frame, marks=_limits(memory, theme))),
        table=_table(memory),
    )


def host_memory(memory: MemoryReport, name: str, theme: Theme) -> Picture:
    """Host bytes of one GPU of each stage, by category, in GiB."""
    names = list(dict.fromkeys(name for stage in memory.stages for name in stage.host))
    bars = _stacks({f"Stage {stage.stage}": stage.host for stage in memory.stages}, theme)
    widest = max(sum(stage.host.values()) for stage in memory.stages)
    frame = _stage_frame("GiB in host memory of one GPU", widest, len(memory.stages), theme)
    return Picture(
        title=f"{name}: {_host_finding(memory)}",
        caption=(
            "Each bar is the pinned host memory of one GPU of a pipeline stage at its peak; a node "
            "has one such part per GPU."
        ),
        figure=draw(bars, frame),
        table=tuple(
            {"Stage": str(stage.stage)}
            | {words(name): gibibytes(stage.host.get(name, 0.0)) for name in names}
            | {"On the host": gibibytes(sum(stage.host.values()))}
            | {"Activations kept before offload": gibibytes(stage.kept_bytes)}
            for stage in memory.stages
        ),
    )


def _stacks(rows: Mapping[str, Mapping[str, float]], theme: Theme) -> list[Bars]:
    """Bytes by category, a stacked bar in GiB per named row."""
    categories = dict.fromkeys(name for row in rows.values() for name in row)
    return [
        Bars(
            name=words(category),
            swatch=swatch(MEANING.get(category, "other"), theme),
            x=[row.get(category, 0.0) / _GIB for row in rows.values()],
            y=list(rows),
            detail=[[gibibytes(row.get(category, 0.0))] for row in rows.values()],
            hover=f"%{{y}}<br>{words(category)}: %{{customdata[0]}}",
        )
        for category in categories
        if any(row.get(category, 0.0) > 0 for row in rows.values())
    ]


def _stage_frame(title: str, widest: float, rows: int, theme: Theme) -> Frame:
    return Frame(
        x=Axis(title, span=(0, widest / _GIB * 1.04)),
        y=name_axis(()),
        height=60 + 26 * rows,
        theme=theme,
        width=NARROWEST,
    )


def _host_finding(memory: MemoryReport) -> str:
    """How full the host memory of the fullest node is."""
    used = gibibytes(memory.host_per_node)
    if memory.host_capacity is None:
        return f"GPUs of the fullest node keep {used} in its host memory"
    found = f"GPUs of the fullest node keep {used} in its {gibibytes(memory.host_capacity)} of host"
    return f"{found} memory" if memory.fits_host else f"{found} memory: too much"


def peak_memory(
    memory: MemoryReport, by_op: Mapping[str, float], name: str, theme: Theme
) -> Picture:
    """What fills the fullest GPU at its fullest moment, part by part, up to its capacity, in GiB;
    `by_op` says what the activations consist of, in bytes."""
    rungs: list[Rung] = []
    for label, category, size in _parts(memory, by_op):
        text = gibibytes(size)
        look = swatch(MEANING.get(category, "reserve"), theme)
        start = rungs[-1].end if rungs else 0.0
        rungs.append(Rung(label, start, size / _GIB, look, text, f"<b>{label}</b>: {text}"))
    free = memory.budget - memory.peak.peak_bytes
    if free > 0:
        text = f"{gibibytes(free)} free"
        look = swatch("free", theme)
        rungs.append(Rung("Free", rungs[-1].end, free / _GIB, look, text, text))
    capacity = f"capacity {gibibytes(memory.capacity)}"
    mark = Mark(memory.capacity / _GIB, capacity, ALARM[theme], dash="solid", anchor="right")
    return Picture(
        title=f"{name}: {_largest(memory)}",
        caption=(
            f"One GPU of stage {memory.peak.stage} during the {memory.peak.peak_moment}. Each bar "
            "begins where the one above ends. Beyond the line the plan does not fit."
            f"{_as_counted(memory)}"
        ),
        figure=cascade(rungs, "GiB on one GPU", theme, [mark]),
        table=tuple(
            {"Part": rung.label, "Takes": rung.text, "Up to here": gibibytes(rung.end * _GIB)}
            for rung in rungs
        ),
    )


def _as_counted(memory: MemoryReport) -> str:
    """What PyTorch and the driver would print, in a sentence."""
    device = memory.device
    if device is None:
        return ""
    return (
        f" PyTorch prints {gibibytes(device.allocated)} allocated and "
        f"{gibibytes(device.reserved)} reserved, nvidia-smi {gibibytes(device.in_use)} in use."
    )


def _largest(memory: MemoryReport) -> str:
    """What the fullest GPU has most of, and how full it is."""
    peak = memory.peak
    most = max(peak.categories, key=lambda category: peak.categories[category])
    full = gibibytes(peak.peak_bytes + sum(memory.reserve.values()))
    return (
        f"the fullest GPU needs {full} of {gibibytes(memory.capacity)}, the largest "
        f"part for {words(most).lower()} ({gibibytes(peak.categories[most])})"
    )


def _parts(memory: MemoryReport, by_op: Mapping[str, float]) -> list[tuple[str, str, float]]:
    """Label, category and bytes of every part of the peak, activations by op, reserve last."""
    parts: list[tuple[str, str, float]] = []
    for category, size in memory.peak.categories.items():
        if category != "activations":
            parts.append((words(category), category, size))
            continue
        ranked = sorted(by_op.items(), key=lambda item: -item[1])
        named = ranked if len(ranked) <= _NAMED + 1 else ranked[:_NAMED]
        parts += [(_kept(op), category, part) for op, part in named]
        rest = size - sum(part for _, part in named)
        parts.append((f"Kept by {len(ranked) - len(named)} others", category, rest))
    parts += [(f"Reserve: {name}", "reserve", size) for name, size in memory.reserve.items()]
    return [part for part in parts if part[2] > 1.0]


def _kept(op: str) -> str:
    """Who keeps activations, in words."""
    if op == WEIGHT_GRADIENTS:
        return "Kept for weight gradients"
    return f"Kept by {op.replace('_', ' ')}"


def memory_map(memory: MemoryReport, name: str, theme: Theme) -> Picture:
    """Device bytes of every stage at its fullest moment, by category, as colours, in GiB."""
    categories = _categories(memory.stages)
    values = [
        [stage.categories.get(category, 0.0) / _GIB for category in categories]
        for stage in memory.stages
    ]
    most = max(range(len(categories)), key=lambda at: max(row[at] for row in values))
    spread = [row[most] for row in values]
    frame = Frame(
        x=Axis(grid=False),
        y=name_axis(()),
        height=110 + 26 * len(memory.stages),
        theme=theme,
        width=NARROWEST,
    )
    cells = Cells(
        x=[words(category) for category in categories],
        y=[f"Stage {stage.stage}" for stage in memory.stages],
        values=values,
        text=[[f"{value:.3g}" if value else "" for value in row] for row in values],
        hover="%{y}, %{x}: %{z:.3~g} GiB",
        unit="GiB",
    )
    return Picture(
        title=(
            f"{name}: {words(categories[most]).lower()} weigh most, from {min(spread):.3g} to "
            f"{max(spread):.3g} GiB per stage"
        ),
        caption=(
            "Rows are stages at their peak, columns are categories. Numbers are GiB on one GPU."
        ),
        figure=draw([cells], frame),
        table=_table(memory),
    )


def _finding(memory: MemoryReport) -> str:
    peak, spare = memory.peak, memory.budget - memory.peak.peak_bytes
    over = sum(stage.peak_bytes > memory.budget for stage in memory.stages)
    if over:
        return (
            f"{over} of {len(memory.stages)} stages are over budget, stage {peak.stage} by "
            f"{gibibytes(-spare)} during the {peak.peak_moment}"
        )
    return (
        f"fits, with {gibibytes(spare)} to spare on stage {peak.stage}, its fullest moment the "
        f"{peak.peak_moment}"
    )


def _limits(memory: MemoryReport, theme: Theme) -> tuple[Mark, ...]:
    budget = Mark(
        memory.budget / _GIB,
        f"budget {gibibytes(memory.budget)}",
        ALARM[theme],
        dash="solid",
        anchor="right",
    )
    capacity = Mark(
        memory.capacity / _GIB,
        f"capacity {gibibytes(memory.capacity)}",
        INK[theme],
        anchor="right",
        lift=1,
    )
    return (budget, capacity)


def _label(stage: StagePeak, budget: float, theme: Theme) -> str:
    """The stage in words; what is over budget says so in bold, not by its length alone."""
    over = stage.peak_bytes - budget
    if over <= 0:
        return f"Stage {stage.stage}"
    words = f"Stage {stage.stage}: {gibibytes(over)} over"
    return f'<b><span style="color:{ALARM[theme]}">{words}</span></b>'


def _categories(stages: Sequence[StagePeak]) -> list[str]:
    """Categories in ledger order, without those that are empty everywhere."""
    names = dict.fromkeys(name for stage in stages for name in stage.categories)
    return [name for name in names if any(stage.categories.get(name, 0.0) > 0 for stage in stages)]


def _table(memory: MemoryReport) -> tuple[Row, ...]:
    names = _categories(memory.stages)
    return tuple(
        {"Stage": str(stage.stage)}
        | {words(name): gibibytes(stage.categories.get(name, 0.0)) for name in names}
        | {"Peak": gibibytes(stage.peak_bytes), "Free": gibibytes(memory.budget - stage.peak_bytes)}
        | {"Fullest during": stage.peak_moment, "Forwards in flight": str(stage.in_flight)}
        for stage in memory.stages
    )


def words(category: str) -> str:
    """A category as people read it."""
    return capital(category.replace("_", " "))


def memory_over_time(
    series: MemorySeries, memory: MemoryReport, trace: Trace, theme: Theme
) -> Picture:
    """Bytes on one rank over the played part of the step, stacked by category, in GiB."""
    few = thinned(series, POINTS)
    drawings = _areas(few, few.categories, theme)
    drawings += [_limit(memory, series, theme), _peak(series, theme)]
    top = max(memory.budget, series.peak_bytes) / _GIB
    frame = Frame(
        x=_step_axis(series),
        y=Axis("GiB on one GPU", span=(0.0, 1.14 * top)),
        height=330,
        theme=theme,
        marks=repeat_mark(trace, (0, series.end_ns), theme),
        notes=(_peak_note(series, memory, theme),),
    )
    return Picture(
        title=f"{capital(series.role)} {_peak_finding(series, memory)}",
        caption=" ".join([_READING, *repeat_note(trace)]),
        figure=draw(drawings, frame),
        table=_series_table(series),
    )


def host_over_time(series: MemorySeries, trace: Trace, theme: Theme) -> Picture:
    """Bytes of one rank in host memory over the played part of the step, stacked by category, in
    GiB; for a series that has any."""
    few = thinned(series, POINTS)
    most, least = float(series.host_total.max()), float(series.host_total.min())
    frame = Frame(
        x=_step_axis(series),
        y=Axis("GiB of one GPU in host memory", span=(0.0, 1.08 * most / _GIB)),
        height=330,
        theme=theme,
        marks=repeat_mark(trace, (0, series.end_ns), theme),
    )
    return Picture(
        title=(
            f"{capital(series.role)} keeps up to {gibibytes(most)} in host "
            f"memory, of which {gibibytes(most - least)} come and go"
        ),
        caption=" ".join([_HOST_READING, *repeat_note(trace)]),
        figure=draw(_areas(few, few.host, theme), frame),
        table=tuple(
            {
                "Category": words(name),
                "Least": show(float(np.min(sizes)), "bytes"),
                "Most": show(float(np.max(sizes)), "bytes"),
            }
            for name, sizes in {**series.host, "all": series.host_total}.items()
        ),
    )


def _step_axis(series: MemorySeries) -> Axis:
    return Axis("Seconds since the step began", span=(0.0, series.end_ns / 1e9), grid=False)


def _areas(
    few: MemorySeries, categories: Mapping[str, NDArray[np.float64]], theme: Theme
) -> list[Drawing]:
    """Bytes stacked by category, those that are ever something."""
    return [
        Area(
            name=words(name),
            swatch=swatch(MEANING.get(name, "other"), theme),
            x=np.append(few.times, few.end_ns) / 1e9,
            y=np.append(sizes, sizes[-1]) / _GIB,
            hover=f"{words(name)}: %{{y:.3~g}} GiB at %{{x:.4~g}} s",
        )
        for name, sizes in categories.items()
        if sizes.any()
    ]


def _peak_finding(series: MemorySeries, memory: MemoryReport) -> str:
    free = memory.budget - series.peak_bytes
    swing = float(series.total.max() - series.total.min())
    verdict = f"{gibibytes(free)} below the budget" if free >= 0 else f"{gibibytes(-free)} over it"
    return (
        f"peaks at {gibibytes(series.peak_bytes)}, {verdict}, during the {series.peak_moment}; "
        f"{gibibytes(swing)} of it come and go"
    )


def _limit(memory: MemoryReport, series: MemorySeries, theme: Theme) -> Line:
    height = memory.budget / _GIB
    end = series.end_ns / 1e9
    name = f"Budget {gibibytes(memory.budget)}"
    return Line([0.0, end], [height, height], ALARM[theme], name, hover=name)


def _peak(series: MemorySeries, theme: Theme) -> Dots:
    return Dots(
        name="",
        x=[series.peak_ns / 1e9],
        y=[series.peak_bytes / _GIB],
        fill=INK[theme],
        line=INK[theme],
        symbol="triangle-down",
        size=11,
        hover=f"{gibibytes(series.peak_bytes)}: {series.peak_moment}",
    )


def _peak_note(series: MemorySeries, memory: MemoryReport, theme: Theme) -> Note:
    late = series.peak_ns > 0.6 * series.end_ns
    return Note(
        series.peak_ns / 1e9,
        series.peak_bytes / _GIB + 0.05 * memory.budget / _GIB,
        f"peak {gibibytes(series.peak_bytes)}",
        INK[theme],
        "right" if late else "left",
    )


def _series_table(series: MemorySeries) -> tuple[Row, ...]:
    """Per category: the least, the most, and what it has at the peak."""
    peak = int(np.searchsorted(series.times, series.peak_ns))
    rows = [
        _row(words(name), sizes, float(sizes[peak]))
        for name, sizes in series.categories.items()
        if sizes.any()
    ]
    return (*rows, _row("All", series.total, series.peak_bytes))


def _row(name: str, sizes: Sequence[float] | np.ndarray, at_peak: float) -> Row:
    return {
        "Category": name,
        "Least": show(float(np.min(sizes)), "bytes"),
        "Most": show(float(np.max(sizes)), "bytes"),
        "At the peak": show(at_peak, "bytes"),
    }
