"""Small reports and traces, made by hand: figures only draw what these hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from twin.engine.program import STREAMS
from twin.engine.trace import Spans, Trace
from twin.reports.breakdown import CAUSES
from twin.reports.head import CatalogUse, Provenance
from twin.reports.report import LinkUse, MemoryReport, Report, RoleBreakdown, StagePeak
from twin.spec.kpis import KPIS

SECOND = 10**9
Row = tuple[int, str, str, int, int, int, int]
"""Role, stream, name, chunk, micro-batch, start and end in ms."""


def breakdown(**seconds: float) -> dict[str, int]:
    """A breakdown in ns from seconds per cause."""
    return {cause: round(seconds.get(cause, 0.0) * SECOND) for cause in CAUSES}


def stage_peak(stage: int, **gib: float) -> StagePeak:
    """A stage's peak from GiB per category."""
    categories = {name: size * 2.0**30 for name, size in gib.items()}
    moment = "forward of micro-batch 3, chunk 0"
    return StagePeak(stage, sum(categories.values()), moment, 2, categories)


def memory(*stages: StagePeak, capacity: float = 80.0, reserve: float = 5.0) -> MemoryReport:
    """A memory report, capacity and reserve in GiB."""
    size, kept = capacity * 2.0**30, reserve * 2.0**30
    peak = max(stages, key=lambda stage: stage.peak_bytes)
    return MemoryReport(peak, size, {"context": kept}, size - kept, stages)


def make_report(name: str, row: Mapping[str, int]) -> Report:
    """A report of two stages that spend the step alike."""
    ledger = memory(stage_peak(0, parameters=30, activations=20), stage_peak(1, parameters=30))
    return Report(
        name=name,
        scenario={},
        tokens=10**12,
        hash="0" * 64,
        fits=True,
        kpis={kpi.key: 1.0 for kpi in KPIS},
        intervals={kpi.key: None for kpi in KPIS},
        step_ns=sum(row.values()),
        breakdown_ns=row,
        roles=(RoleBreakdown("stage 0", row), RoleBreakdown("stage 1", row)),
        memory=ledger,
        links={"nic": LinkUse(1e9, 0.1)},
        extrapolated_fraction=0.0,
        speed_of_light_seconds=1.0,
        warnings=(),
        provenance=Provenance(
            twin_version="0",
            created="",
            wall_seconds=0.0,
            calibration="hand",
            fidelity="events",
            events=1,
            catalog=CatalogUse("", {}, ()),
            reproduce=None,
            details={"played_microbatches": 1, "microbatches": 1},
        ),
    )


def make_trace(rows: list[Row], stages: int, **other: Any) -> Trace:
    """A trace from rows in the order of the contract: role, stream, start."""
    rows = sorted(rows, key=lambda row: (row[0], STREAMS.index(row[1]), row[5]))
    names = tuple(dict.fromkeys(row[2] for row in rows))
    ms = 10**6
    spans = Spans(
        role=np.array([row[0] for row in rows], np.int32),
        stream=np.array([STREAMS.index(row[1]) for row in rows], np.int8),
        name=np.array([names.index(row[2]) for row in rows], np.int32),
        chunk=np.array([row[3] for row in rows], np.int32),
        microbatch=np.array([row[4] for row in rows], np.int32),
        start=np.array([row[5] * ms for row in rows], np.int64),
        end=np.array([row[6] * ms for row in rows], np.int64),
    )
    step = int(spans.end.max())
    busy = [
        int(sum((r[6] - r[5]) * ms for r in rows if r[0] == at and r[1] == "compute"))
        for at in range(stages)
    ]
    return Trace(
        spans=spans,
        names=names,
        roles=tuple(f"stage {stage}" for stage in range(stages)),
        step_ns=step,
        breakdown_ns=tuple(breakdown() | {"compute": b, "bubble": step - b} for b in busy),
        link_bytes={},
        link_busy={},
        events=len(rows),
        played_microbatches=2,
        microbatches=2,
        **other,
    )


def pipeline(stages: int, microbatches: int, segments: int = 2) -> list[Row]:
    """GPipe by hand: every segment of 10 ms is followed by an expert all-to-all of 2 ms."""
    rows: list[Row] = []
    length = segments * 12
    turn = (stages + microbatches) * length
    for stage in range(stages):
        for batch in range(microbatches):
            places = (
                ("forward", (stage + batch) * length),
                ("backward", turn + (stages - 1 - stage + batch) * length),
            )
            for name, begin in places:
                for part in range(segments):
                    at = begin + part * 12
                    rows.append((stage, "compute", name, stage, batch, at, at + 10))
                    rows.append((stage, "expert", "dispatch", stage, batch, at + 10, at + 12))
    return rows


def report_of(name: str, **seconds: float) -> Report:
    """A report from seconds per cause."""
    return make_report(name, breakdown(**seconds))


def memory_of(*stages: Mapping[str, float], **size: float) -> MemoryReport:
    """A memory report from the GiB of each stage by category."""
    return memory(*(stage_peak(at, **gib) for at, gib in enumerate(stages)), **size)


def trace_of(stages: int, microbatches: int, segments: int = 2, **other: int) -> Trace:
    """A GPipe trace of so many stages, micro-batches and segments per pass."""
    return make_trace(pipeline(stages, microbatches, segments), stages, **other)


def traces(figure: Any) -> list[Any]:
    """The traces of a plotly figure, which has no types."""
    return list(figure.data)


def layout(figure: Any) -> Any:
    """The layout of a plotly figure, which has no types."""
    return figure.layout
