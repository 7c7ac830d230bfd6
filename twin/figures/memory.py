"""Does it fit, drawn: device memory by stage and category against budget and capacity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twin.figures.palette import ALARM, INK, Meaning, Theme, swatch
from twin.figures.plotly import Axis, Bars, Frame, Mark, Picture, Row, draw
from twin.report.numbers import gibibytes
from twin.report.report import MemoryReport, StagePeak

MEANING: Final[dict[str, Meaning]] = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer_dense": "optimizer_dense",
    "optimizer_expert": "optimizer_expert",
    "pipeline_buffers": "pipeline",
    "expert_buffers": "expert",
    "tensor_buffers": "tensor",
    "activations": "activations",
    "logits": "logits",
    "working_set": "working_set",
}
"""The colour of each category of the ledger; buffers take that of the communication they serve."""

NARROWEST: Final = 350
"""Pixels of width from which on these figures can be read."""
_GIB: Final = 2.0**30


def stage_memory(memory: MemoryReport, name: str, theme: Theme, reach: float = 0.0) -> Picture:
    """Device bytes on one rank of each stage at its fullest moment, by category, in GiB. The axis
    covers `reach` (bytes) at least, so that figures side by side can share a scale."""
    labels = [_label(stage, memory.budget, theme) for stage in memory.stages]
    bars = [
        Bars(
            name=_words(category),
            swatch=swatch(MEANING.get(category, "other"), theme),
            x=[stage.categories.get(category, 0.0) / _GIB for stage in memory.stages],
            y=labels,
            detail=[[gibibytes(stage.categories.get(category, 0.0))] for stage in memory.stages],
            hover=f"%{{y}}<br>{_words(category)}: %{{customdata[0]}}",
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
        | {_words(name): gibibytes(stage.categories.get(name, 0.0)) for name in names}
        | {"Peak": gibibytes(stage.peak_bytes), "Free": gibibytes(memory.budget - stage.peak_bytes)}
        | {"Fullest during": stage.peak_moment, "Forwards in flight": str(stage.in_flight)}
        for stage in memory.stages
    )


def _words(category: str) -> str:
    words = category.replace("_", " ")
    return words[:1].upper() + words[1:]
