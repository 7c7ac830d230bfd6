"""An iteration of reinforcement learning: rollouts, switch, scores, training, weight update, wake,
on GPUs in turns or on GPUs of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from twin.kinds.base import ALONE, Check, Run, Tools
from twin.kinds.rollouts import OfRollouts
from twin.scenario import Root, Scenario
from twin.spec.kpis import ITERATION_KPIS

if TYPE_CHECKING:
    from twin.figures.charts import View
    from twin.kinds.iteration.report import IterationReport
    from twin.kinds.iteration.types import IterationPlan, IterationTrace


class Iteration(OfRollouts):
    """An iteration: rollouts, steps of the trainer and a weight update, each by its simulator."""

    name = "rl_iteration"
    title = "an iteration of reinforcement learning"
    length = "iteration_seconds"
    kpis = ITERATION_KPIS
    frontier = (
        "iteration_seconds",
        "cost_usd_per_iteration",
        "trained_tokens_per_second_per_gpu",
    )
    headline = (
        "iteration_seconds",
        "rollout_seconds",
        "trained_tokens_per_second_per_gpu",
        "idle_share",
        "cost_usd_per_iteration",
    )
    shown_kpis = (
        "iteration_seconds",
        "iterations_per_day",
        "idle_share",
        "cost_usd_per_iteration",
        "trained_tokens_per_second_per_gpu",
        "rollout_seconds",
        "train_seconds",
    )
    subject = "an iteration is"
    parts = "phases"
    words = ("types", "PHASES")
    changes_most = "the phase that changes most is"

    def recognises(self, scenario: Root) -> bool:
        return isinstance(scenario, Scenario) and bool(scenario.rl and scenario.rl.iteration)

    def scope(self, scenario: Root) -> str | None:
        return (
            "the trainer's step alone, for all of its tokens. `twin run` answers the iteration of "
            "reinforcement learning."
        )

    def simulate(self, program: IterationPlan, tools: Tools = ALONE) -> IterationTrace:
        return self._own("simulate", "simulate")(program, tools.progress)

    def shortage(self, plan: IterationPlan) -> tuple[str, float | None]:
        from twin.reports.table import gibibytes

        over = [f"{fit.name} is {gibibytes(fit.over)} over" for fit in plan.fits if not fit.fits]
        return "; ".join(over), -max(fit.over for fit in plan.fits)

    def check(self, scenario: Scenario, tools: Tools = ALONE) -> Check:
        from twin.kinds.iteration.report import fitting, memory_table
        from twin.reports.head import FITS, judge

        plan = self.plan(scenario)
        fits = all(fit.fits for fit in plan.fits)
        return Check(
            kind=self.name,
            scenario=scenario,
            fits=fits,
            expectations=judge(scenario.expect, {FITS: fits}),
            warnings=plan.warnings,
            sentences=(fitting(plan.fits),),
            tables=(memory_table(plan.fits),),
            body={"memory": [asdict(fit) | {"fits": fit.fits} for fit in plan.fits]},
        )

    def facts(self, run: Run) -> str:
        from twin.kinds.iteration.report import batch_words

        return batch_words(run.report.batch)

    def comparison_figures(self, runs: Sequence[Run], comparison: Any) -> Sequence[View]:
        from twin.kinds.iteration.figures import comparison_views

        return comparison_views([run.report for run in runs])

    def winner(self, reports: Sequence[IterationReport]) -> Sequence[str]:
        from twin.kinds.iteration.ways import sentences

        return sentences(reports)

    def part_seconds(self, report: IterationReport) -> Mapping[str, float]:
        """Of phases, which sum to the iteration only where they follow one another: one step off,
        rollouts and training lie beside each other."""
        return {str(phase): seconds for phase, seconds in report.phases.items()}


KIND: Final = Iteration()
