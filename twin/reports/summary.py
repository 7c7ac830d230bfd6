"""Plan and Trace to Report: the last of the five verbs."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from math import isfinite
from typing import Any

from twin.arch.ops import Layer, Op, Work
from twin.arch.recompute import again
from twin.engine.trace import Trace
from twin.hardware.roofline import speed_of_light
from twin.loading import scenario_hash
from twin.planning.replay import device_memory
from twin.planning.types import DeviceMemory, Memory, Plan, StageMemory
from twin.reports.breakdown import CAUSES, exposures, mean
from twin.reports.cost import bill, data_of
from twin.reports.head import FITS, UNTIMED, CatalogUse, RunInfo, judge, provenance
from twin.reports.interval import circumstances
from twin.reports.kpi_intervals import Interval, intervals
from twin.reports.kpis import NO_GOODPUT, goodput_of, kpis, with_spans
from twin.reports.overlap import overlap
from twin.reports.report import (
    LinkUse,
    MemoryReport,
    Report,
    RoleBreakdown,
    StagePeak,
)
from twin.reports.tuned_step import tuned_step
from twin.reports.uneven import uneven
from twin.scenario import Root
from twin.sources import KINDS, Ledger, Sourced


def report(plan: Plan, trace: Trace, run: RunInfo = UNTIMED) -> Report:
    """The answers to a run: key figures, a breakdown that sums to the step, memory, links,
    warnings, provenance."""
    scenario = plan.scenario
    breakdown_ns = mean(trace.breakdown_ns, trace.ranks)
    assert sum(breakdown_ns.values()) == trace.step_ns, "the breakdown must sum to the step"
    at, without = circumstances(plan, breakdown_ns), kpis(plan, trace.step_ns, breakdown_ns)
    tuned = tuned_step(plan, assumed=plan.scenario.software_assumed)
    spans, correction, doubts = intervals(at, without, physics=run.physics, tuned=tuned)
    warned = plan.warnings if tuned is None else tuned.said(plan.warnings, trace.step_ns / 1e9)
    failed = goodput_of(plan, trace.step_ns)
    figures = kpis(plan, trace.step_ns, breakdown_ns, failed)
    gpu_hours = figures["gpu_hours"]
    assert gpu_hours is not None, "a run has a length"
    paid = bill(scenario.cluster, scenario.cost, gpu_hours, breakdown_ns)
    return Report(
        name=scenario.name,
        scenario=resolved(scenario),
        tokens=scenario.train.tokens,
        hash=scenario_hash(scenario),
        fits=plan.memory.fits,
        kpis=figures,
        intervals=with_spans(spans, figures, failed),
        correction=correction,
        step_ns=trace.step_ns,
        breakdown_ns=breakdown_ns,
        roles=tuple(_role(*pair) for pair in zip(trace.roles, trace.breakdown_ns, strict=True)),
        memory=replace(
            memory_report(plan.memory, device_memory(plan), spans["peak_device_bytes"]),
            by_stage=written_policies(plan),
        ),
        links={
            name: LinkUse(size, trace.link_busy[name]) for name, size in trace.link_bytes.items()
        },
        extrapolated_fraction=trace.extrapolated_fraction,
        speed_of_light_seconds=speed_of_light_seconds(plan),
        warnings=(
            *warned,
            *paid.warnings,
            *(failed.warnings if failed else (NO_GOODPUT,)),
            *doubts,
        ),
        provenance=provenance(
            scenario.calibration.name,
            "events",
            trace.events,
            catalog_use(scenario.ledger),
            run,
            played_microbatches=trace.played_microbatches,
            microbatches=trace.microbatches,
        ),
        expectations=judge(scenario.expect, {FITS: plan.memory.fits, **figures}),
        exposure=exposures(trace, breakdown_ns),
        overlap=overlap(plan),
        bill=paid,
        goodput=failed,
        generated=data_of(scenario),
        uneven=uneven(plan, trace),
    )


def resolved(scenario: Root) -> dict[str, Any]:
    """The resolved scenario as a planner would write it, in plain data: quantities with their
    units."""
    return scenario.model_dump(mode="json", by_alias=True)


def memory_report(
    memory: Memory, device: DeviceMemory | None = None, interval: Interval | None = None
) -> MemoryReport:
    """The ledger's peaks against capacity, reserve and budget, in bytes."""
    return MemoryReport(
        peak=_peak(memory.peak),
        capacity=memory.capacity,
        reserve=dict(memory.reserve),
        budget=memory.budget,
        stages=tuple(_peak(stage) for stage in memory.stages),
        host=dict(memory.host),
        host_capacity=memory.host_capacity if isfinite(memory.host_capacity) else None,
        unique_bytes=memory.unique_bytes,
        device=device,
        interval=interval,
    )


def written_policies(plan: Plan) -> tuple[Mapping[str, Any], ...] | None:
    """The policies of stages as `memory.by_stage` takes them."""
    found = plan.by_stage
    return None if found is None else tuple(one.model_dump(mode="json") for one in found)


def speed_of_light_seconds(plan: Plan) -> float:
    """Lower bound of the step: the busiest stage's kernels at the hardware's peak rates (roofline
    with efficiency one), what the memory policy computes again included, with no launch,
    communication, bubble or optimizer step."""
    busy = [0.0] * plan.mesh.pipeline
    for chunk in plan.chunks:
        for layer in chunk.layers:
            busy[chunk.stage] += _layer_seconds(layer, plan) * plan.runs_per_chunk
    return max(busy)


def _layer_seconds(layer: Layer, plan: Plan) -> float:
    gpu, repeated = plan.scenario.cluster.node.gpu, again(layer, layer.policy.recompute)

    def work(op: Op) -> list[Work]:
        return [op.forward, op.backward, op.weight, *[op.forward] * (op.name in repeated)]

    ops = (item for item in layer.items if isinstance(item, Op))
    return sum(speed_of_light(one, gpu) for op in ops for one in work(op))


def _role(name: str, row: Mapping[str, int]) -> RoleBreakdown:
    return RoleBreakdown(name, {cause: int(row.get(cause, 0)) for cause in CAUSES})


def _peak(stage: StageMemory) -> StagePeak:
    return StagePeak(
        stage.stage,
        stage.peak_bytes,
        stage.peak_moment,
        stage.in_flight,
        dict(stage.categories),
        stage.kept_bytes,
        dict(stage.host),
    )


def catalog_use(ledger: Ledger) -> CatalogUse:
    """The works that the catalog numbers of a scenario come from, how many numbers of each kind
    there are, and a digest of the whole ledger."""
    cited = {entry.source.id: entry.source for entry in ledger.values() if entry.source}
    kinds = Counter(entry.kind for entry in ledger.values())
    return CatalogUse(
        digest=_sha256({path: _entry(entry) for path, entry in ledger.items()}),
        numbers={kind: kinds[kind] for kind in KINDS},
        sources=tuple(cited[key] for key in sorted(cited)),
    )


def _entry(entry: Sourced) -> dict[str, Any]:
    """A number of the ledger as plain data; `asdict` copies deeply, which takes five times as
    long."""
    source = entry.source
    return {
        "value": entry.value,
        "kind": entry.kind,
        "source": source and {field.name: getattr(source, field.name) for field in fields(source)},
        "range": entry.range,
        "note": entry.note,
    }


def _sha256(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
