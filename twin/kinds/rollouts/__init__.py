"""Rollouts: requests of many lengths on inference engines, simulated one by one.

Engines are stepped by events (who joins, who is done), not by tokens; a request's turns, its
environment, the memory of its engine and the end of an iteration are events of one clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from twin.kinds.base import ALONE, Check, Kind, Tools
from twin.scenario import Root, Scenario
from twin.spec.kpis import OF_SERVING, ROLLOUT_KPIS

if TYPE_CHECKING:
    from twin.kinds.rollouts.report import RolloutReport
    from twin.planning.types import Warning
    from twin.reports.head import Head


class OfRollouts(Kind):
    """What has rollouts: more of it is other work."""

    refusals = {  # noqa: RUF012  declared as ClassVar in the base
        "seal": "a seal is of one training step",
        "attribution": "only a step's difference is split by edit",
    }

    def does_other_work(self, fields: Iterable[str]) -> bool:
        from twin.kinds.rollouts.report import is_other_work

        return is_other_work(fields)

    def incomparable(self, baseline: Head, candidate: Head) -> tuple[Warning, ...]:
        from twin.kinds.rollouts.report import other_work
        from twin.reports.compare import differences

        return other_work(differences(baseline.scenario, candidate.scenario))


class Rollouts(OfRollouts):
    """Rollouts of a scenario that has `rl` and no `rl.iteration`."""

    name = "rollouts"
    title = "a scenario of rollouts alone"
    length = "rollout_seconds"
    kpis = ROLLOUT_KPIS
    frontier = ("rollout_seconds", "cost_usd_of_rollouts", "tokens_per_second_per_gpu")
    headline = (
        "rollout_seconds",
        "tokens_per_second_per_gpu",
        "tail_share",
        "idle_share",
        "cost_usd_of_rollouts",
    )
    shown_kpis = tuple(kpi.key for kpi in ROLLOUT_KPIS)
    subject = "rollouts are"
    parts = "spent"
    words = ("plan", "SPENT")
    changes_most = "what changes most is the time that engines spend on"

    def recognises(self, scenario: Root) -> bool:
        return isinstance(scenario, Scenario) and bool(scenario.rl and not scenario.rl.iteration)

    def scope(self, scenario: Root) -> str | None:
        return "the trainer's step alone, for all of its tokens. `twin run` answers the rollouts."

    def check(self, scenario: Scenario, tools: Tools = ALONE) -> Check:
        """The trainer's plan is checked, and that the engines can be."""
        from twin.engine import plan as plan_step
        from twin.kinds.plan_check import plan_check

        self.plan(scenario)
        return plan_check(self.name, plan_step(scenario), tools.nearest)

    def deciding(self, report: Head) -> tuple[str, ...]:
        """Times of tokens where these count."""
        every = super().deciding(report)
        return tuple(key for key in every if key not in OF_SERVING or report.kpis[key] is not None)

    def part_seconds(self, report: RolloutReport) -> Mapping[str, float]:
        """Seconds of an iteration that a mean engine spends on each."""
        return {key: share * report.seconds for key, share in report.spent.items()}


KIND: Final = Rollouts()
