"""One optimizer step of a training run: the five verbs of `planning`, `engine` and `reports`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from twin.kinds.base import ALONE, Check, Kind, Ranks, Run, Tools
from twin.scenario import Root, Scenario
from twin.spec.kpis import KPIS

if TYPE_CHECKING:
    from twin.engine.program import Program
    from twin.engine.trace import Trace
    from twin.figures.charts import View
    from twin.network.tenants import Layout
    from twin.planning.types import Plan
    from twin.reports.compare import Comparison
    from twin.reports.head import RunInfo
    from twin.reports.report import Report
    from twin.reports.table import Block
    from twin.reports.together import Together


class Step(Kind):
    """A training step: of the whole run, when it has neither phases nor reinforcement learning."""

    name = "step"
    title = "a training run"
    length = "step_seconds"
    kpis = KPIS
    headline = ("step_seconds", "days", "cost_usd", "mfu")
    shown_kpis = (
        "days",
        "cost_usd",
        "step_seconds",
        "mfu",
        "tokens_per_second",
        "bubble_fraction",
        "exposed_communication_seconds",
        "peak_device_bytes",
    )
    shares_fabric = True
    is_stored = True

    def recognises(self, scenario: Root) -> bool:
        return isinstance(scenario, Scenario) and not scenario.rl and not scenario.phases

    def plan(self, scenario: Scenario, tools: Tools = ALONE) -> Plan:
        from twin.engine import plan

        del tools
        return plan(scenario)

    def lower(self, plan: Plan, ranks: Ranks = "folded") -> Program:
        from twin.engine import lower

        return lower(plan, ranks)

    def simulate(self, program: Program, tools: Tools = ALONE) -> Trace:
        from twin.engine import simulate

        return simulate(program, tools.progress, extrapolate=tools.extrapolate)

    def report(self, plan: Plan, trace: Trace, run: RunInfo) -> Report:
        from twin.reports import report

        return report(plan, trace, run)

    def shortage(self, plan: Plan) -> tuple[str, float | None]:
        from twin.reports.table import gibibytes

        memory, over = plan.memory, list[str]()
        spare = memory.budget - memory.peak.peak_bytes
        if not memory.fits_device:
            over.append(f"stage {memory.peak.stage} is {gibibytes(-spare)} over")
        if not memory.fits_host:
            missing = memory.host_per_node - memory.host_capacity
            over.append(f"the host memory of a node is {gibibytes(missing)} over")
        return "; ".join(over), spare

    def check(self, scenario: Scenario, tools: Tools = ALONE) -> Check:
        from twin.kinds.plan_check import plan_check

        return plan_check(self.name, self.plan(scenario), tools.nearest)

    def compare(self, reports: Sequence[Report]) -> Comparison:
        from twin.reports import compare

        return compare(reports)

    def together(
        self,
        scenarios: Sequence[Scenario],
        layout: Layout,
        progress: Callable[[float], None] | None = None,
    ) -> Together:
        from twin.reports.together import together

        return together(scenarios, layout, progress)

    def sentences(self, run: Run) -> Sequence[str]:
        told = (run.report.correction, run.report.uneven)
        return (run.report.verdict, *(one.words for one in told if one))

    def tables(self, run: Run) -> Sequence[Block]:
        from twin.reports.tables import report_tables

        return report_tables(run.report)

    def facts(self, run: Run) -> str:
        from twin.reports.table import count

        mesh, train = run.plan.mesh, run.plan.scenario.train
        stack, assumed = run.plan.scenario.software, run.plan.scenario.software_assumed
        name = f"{stack.name}{' (assumed)' if assumed else ''}" if stack else "none, bare kernels"
        return (
            f"{run.plan.scenario.cluster.gpus:,} GPUs in total, {mesh.data:,}-way data parallel, "
            f"{run.plan.microbatches:,} micro-batches of each pipeline per step, "
            f"{count(train.global_batch)} tokens per step, software {name}"
        )

    def comparison_figures(self, runs: Sequence[Run], comparison: Comparison) -> Sequence[View]:
        from twin.kinds.step.figures import comparison_views

        return comparison_views(runs, comparison)

    def comparison_tables(
        self, comparison: Comparison, attributions: Sequence[Any] = ()
    ) -> Sequence[Block]:
        from twin.reports.compare import comparison_tables

        return comparison_tables(comparison, attributions)


KIND: Final = Step()
