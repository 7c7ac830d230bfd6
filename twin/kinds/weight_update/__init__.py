"""A weight update: new weights from host memory to the inference engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from twin.kinds.base import ALONE, Check, Kind, Ranks, Run, Tools
from twin.scenario import Root, UpdateScenario
from twin.spec.kpis import UPDATE_KPIS

if TYPE_CHECKING:
    from twin.kinds.weight_update.plan import UpdatePlan, UpdateProgram
    from twin.kinds.weight_update.report import UpdateReport
    from twin.planning.types import Warning
    from twin.reports.table import Block

_NO_STEP: Final = "it has no training step"


class WeightUpdate(Kind):
    """New weights on their way from host memory to the inference engines."""

    name = "weight_update"
    title = "a weight update"
    length = "update_seconds"
    kpis = UPDATE_KPIS
    frontier = ("update_seconds", "cost_usd", "gpu_hours")
    headline = ("update_seconds", "bytes_per_second", "cost_usd")
    root = UpdateScenario
    shown_kpis = tuple(kpi.key for kpi in UPDATE_KPIS)
    subject = "the update is"
    parts = "breakdown"
    words = ("report", "WORDS")
    changes_most = "what changes most is"
    refusals = {  # noqa: RUF012  declared as ClassVar in the base
        "recommend": _NO_STEP,
        "improve": _NO_STEP,
        "explain": _NO_STEP,
        "export": _NO_STEP,
        "seal": _NO_STEP,
        "attribution": "only a step's difference is split by edit",
    }

    def recognises(self, scenario: Root) -> bool:
        return isinstance(scenario, UpdateScenario)

    def lower(self, plan: UpdatePlan, ranks: Ranks = "folded") -> UpdateProgram:
        from twin.kinds.weight_update.lower import lower

        return lower(plan)

    def shortage(self, plan: UpdatePlan) -> tuple[str, float | None]:
        from twin.kinds.weight_update.report import fitting

        memory = plan.memory
        return "" if memory.fits else fitting(memory), memory.budget - memory.device_bytes

    def check(self, scenario: UpdateScenario, tools: Tools = ALONE) -> Check:
        from twin.kinds.weight_update.report import fitting, travel_table
        from twin.reports.head import FITS, judge

        plan = self.plan(scenario)
        memory = plan.memory
        known = {
            FITS: memory.fits,
            "peak_device_bytes": memory.device_bytes,
            "peak_host_bytes_per_node": memory.host_bytes,
        }
        totals = {"device_bytes": memory.device_bytes, "budget": memory.budget}
        return Check(
            kind=self.name,
            scenario=scenario,
            fits=memory.fits,
            expectations=judge(scenario.expect, known),
            warnings=plan.warnings,
            sentences=(fitting(memory),),
            tables=(travel_table(plan),),
            body={
                "memory": asdict(memory) | totals,
                "checkpoint_bytes": plan.payload,
                "buckets": len(plan.buckets),
                "rounds": plan.rounds,
                "buffer_bytes": plan.buffers.bytes,
            },
        )

    def document(self, run: Run) -> dict[str, Any]:
        """With the same update by other pipelines."""
        from twin.kinds.weight_update.report import alternatives

        others = alternatives(run.scenario, run.report)
        return super().document(run) | {"alternatives": [asdict(other) for other in others]}

    def facts(self, run: Run) -> str:
        from twin.kinds.weight_update.figures import facts

        return facts(run.report)

    def tables(self, run: Run) -> Sequence[Block]:
        from twin.kinds.weight_update.report import alternatives, report_tables

        return report_tables(run.report, alternatives(run.scenario, run.report))

    def part_seconds(self, report: UpdateReport) -> Mapping[str, float]:
        return {stage: ns / 1e9 for stage, ns in report.breakdown_ns.items()}

    def incomparable(self, baseline: UpdateReport, candidate: UpdateReport) -> tuple[Warning, ...]:
        from twin.planning.types import Warning

        if baseline.travel.checkpoint_bytes == candidate.travel.checkpoint_bytes:
            return ()
        message = "Checkpoints of other sizes travel: compare bytes per second, not seconds."
        return (Warning("different-work", message),)


KIND: Final = WeightUpdate()
