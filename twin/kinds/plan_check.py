"""The check of a trainer's plan: a step's own, and that of a trainer whose rollouts are asked
about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from twin.kinds.base import Check
from twin.planning.replay import device_memory
from twin.planning.types import Plan
from twin.reports import fitting, memory_report
from twin.reports.cost import check_data
from twin.reports.head import FITS, judge
from twin.reports.kpi_intervals import peak_interval
from twin.reports.tables import nearest_table, plan_tables
from twin.scenario import Scenario


def plan_check(
    kind: str, planned: Plan, nearest: Callable[[Scenario], tuple[Any, ...]] | None
) -> Check:
    """Whether a plan fits; where it does not, the plans near to it that do.

    Raises `ScenarioError` where the run's data cannot be generated.
    """
    scenario, memory = planned.scenario, planned.memory
    check_data(scenario)
    near = nearest(scenario) if nearest and not memory.fits else ()
    report = memory_report(memory, device_memory(planned), peak_interval(planned))
    known = {
        FITS: memory.fits,
        "peak_device_bytes": memory.peak.peak_bytes,
        "peak_host_bytes_per_node": memory.host_per_node,
    }
    mesh = planned.mesh
    return Check(
        kind=kind,
        scenario=scenario,
        fits=memory.fits,
        expectations=judge(scenario.expect, known),
        warnings=planned.warnings,
        sentences=(fitting(report),),
        tables=(*plan_tables(planned, report), *([nearest_table(near)] if near else [])),
        body={
            "layout": asdict(mesh)
            | {"ranks": planned.scenario.cluster.gpus, "microbatches": planned.microbatches},
            "chunks": [
                {
                    "chunk": chunk.index,
                    "stage": chunk.stage,
                    "layers": [layer.kind for layer in chunk.layers],
                }
                for chunk in planned.chunks
            ],
            "memory": report.to_json(),
            "nearest": [suggestion.to_json() for suggestion in near],
        },
    )
