"""Does it fit, drawn: device memory by stage and category against budget and capacity, what fills
the fullest GPU, and what would free most of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from twin.figures.cascade import Rung, cascade
from twin.figures.palette import ALARM, INK, Meaning, Theme, swatch
from twin.figures.plotly import Axis, Bars, Cells, Frame, Mark, Picture, Row, draw
from twin.figures.words import capital
from twin.reports.memory_series import WEIGHT_GRADIENTS
from twin.reports.numbers import gibibytes, show
from twin.reports.report import MemoryReport, StagePeak

if TYPE_CHECKING:  # studies bring runs and their store along, which no figure needs
    from twin.explore.study.levers import Lever

MEANING: Final[dict[str, Meaning]] = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer_dense": "optimizer_dense",
    "optimizer_expert": "optimizer_expert",
    "pipeline_buffers": "pipeline",
    "expert_buffers": "expert",
    "tensor_buffers": "tensor",
    "context_buffers": "context",
    "data_buffers": "data",
    "optimizer_buffers": "offload",
    "activations": "activations",
    "logits": "logits",
    "working_set": "working_set",
}
"""The colour of each category of the ledger; buffers take that of the communication they serve."""

NARROWEST: Final = 350
"""Pixels of width from which on these figures can be read."""
_GIB: Final = 2.0**30
_NAMED: Final = 6
"""Ops whose activations have a bar of their own; the rest is one."""


def stage_memory(memory: MemoryReport, name: str, theme: Theme, reach: float = 0.0) -> Picture:
    """Device bytes on one rank of each stage at its fullest moment, by category, in GiB. The axis
    covers `reach` (bytes) at least, so that figures side by side can share a scale."""
    labels = [_label(stage, memory.budget, theme) for stage in memory.stages]
    bars = [
        Bars(
            name=words(category),
            swatch=swatch(MEANING.get(category, "other"), theme),
            x=[stage.categories.get(category, 0.0) / _GIB for stage in memory.stages],
            y=labels,
            detail=[[gibibytes(stage.categories.get(category, 0.0))] for stage in memory.stages],
            hover=f"%{{y}}<br>{words(category)}: %{{customdata[0]}}",
        )
        for category in _categories(memory.stages)
    ]
    widest = max(memory.capacity, memory.peak.peak_bytes, reach) / _GIB
    frame = Frame(
        x=Axis("GiB on one GPU", span=(0, widest * 1.04)),
        y=Axis(reverse=True, grid=False),
        height=60 + 26 * len(labels),
        theme=theme,
        width=NARROWEST,
        marks=_limits(memory, theme),
    )
    return Picture(
        title=f"{name}: {_finding(memory)}",
        caption=(
            "Each bar is one GPU of a pipeline stage at its fullest moment. Tensors must end left "
            "of the budget line; between budget and capacity lies the runtime's reserve."
        ),
        figure=draw(bars, frame),
        table=_table(memory),
    )


def host_memory(memory: MemoryReport, name: str, theme: Theme) -> Picture:
    """Host bytes of one GPU of each stage, by category, in GiB, against its part of the node."""
    labels = [f"Stage {stage.stage}" for stage in memory.stages]
    names = list(dict.fromkeys(name for stage in memory.stages for name in stage.host))
    bars = [
        Bars(
            name=words(category),
            swatch=swatch(MEANING.get(category, "other"), theme),
            x=[stage.host.get(category, 0.0) / _GIB for stage in memory.stages],
            y=labels,
            detail=[[gibibytes(stage.host.get(category, 0.0))] for stage in memory.stages],
            hover=f"%{{y}}<br>{words(category)}: %{{customdata[0]}}",
        )
        for category in names
    ]
    widest = max(sum(stage.host.values()) for stage in memory.stages) / _GIB
    frame = Frame(
        x=Axis("GiB in host memory of one GPU", span=(0, widest * 1.04)),
        y=Axis(reverse=True, grid=False),
        height=60 + 26 * len(labels),
        theme=theme,
        width=NARROWEST,
    )
    return Picture(
        title=f"{name}: {_host_finding(memory)}",
        caption=(
            "Each bar is what one GPU of a pipeline stage keeps in host memory at its fullest "
            "moment there, pinned; a node has as many of them as it has GPUs."
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
            f"One GPU of stage {memory.peak.stage} during the {memory.peak.peak_moment}: each bar "
            "begins where the one above ends. The line is what the driver exposes; beyond it the "
            "plan does not fit."
        ),
        figure=cascade(rungs, "GiB on one GPU", theme, [mark]),
        table=tuple(
            {"Part": rung.label, "Takes": rung.text, "Up to here": gibibytes(rung.end * _GIB)}
            for rung in rungs
        ),
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
        y=Axis(reverse=True, grid=False),
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
            "Rows are stages at their fullest moment, columns what fills them; numbers are GiB on "
            "one GPU, and the fuller the colour, the more."
        ),
        figure=draw([cells], frame),
        table=_table(memory),
    )


def memory_levers(
    levers: Sequence[Lever], memory: MemoryReport, name: str, theme: Theme
) -> Picture:
    """What single changes of the plan would free on the fullest GPU, in GiB."""
    look = swatch("free", theme)
    bars = Bars(
        name="",
        swatch=look,
        x=[lever.saved_bytes / _GIB for lever in levers],
        y=[lever.label for lever in levers],
        text=[_freed(lever) for lever in levers],
        outside=True,
        detail=[[lever.path, lever.price] for lever in levers],
        hover="%{customdata[0]}, %{y}: %{text}<br>%{customdata[1]}",
    )
    widest = max((lever.saved_bytes for lever in levers), default=0.0) / _GIB
    frame = Frame(
        x=Axis("GiB freed on the fullest GPU", span=(0.0, 1.04 * max(widest, 0.1))),
        y=Axis(reverse=True, grid=False),
        height=60 + 46 * max(len(levers), 1),
        theme=theme,
        width=NARROWEST,
        legend=False,
    )
    return Picture(
        title=f"{name}: {_best(levers, memory)}",
        caption=(
            "Each bar is the plan with that one change, planned anew; other stages may become the "
            "fullest. What it costs is in the table; two changes at once do not add up."
        ),
        figure=draw([bars], frame),
        table=tuple(
            {
                "Change": lever.label,
                "Frees": gibibytes(lever.saved_bytes),
                "Peak then": gibibytes(lever.peak_bytes),
                "Fits": "yes" if lever.fits else "no",
                "Price": lever.price,
            }
            | ({} if lever.step_seconds is None else {"Step": _longer(lever.step_seconds)})
            for lever in levers
        ),
    )


def _freed(lever: Lever) -> str:
    price = "" if lever.step_seconds is None else f",<br>step {_longer(lever.step_seconds)}"
    return f"{gibibytes(lever.saved_bytes)}, {'fits' if lever.fits else 'does not fit'}{price}"


def _longer(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{show(abs(seconds), 's')}"


def _best(levers: Sequence[Lever], memory: MemoryReport) -> str:
    if not levers:
        return "no single change of the layout frees memory on the fullest GPU"
    best = levers[0]
    saved = f"{best.label} frees most, {gibibytes(best.saved_bytes)}"
    if memory.peak.peak_bytes <= memory.budget:
        return saved
    fitting = sum(lever.fits for lever in levers)
    return f"{saved}; {fitting} of {len(levers)} single changes make the plan fit"


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
