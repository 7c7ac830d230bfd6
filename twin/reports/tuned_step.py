"""The step of a plan whose software is assumed, under the tuned stack of the same framework.

The interval of such a plan holds both steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log

from twin.engine import lower, simulate
from twin.engine import plan as make_plan
from twin.loading.typical_software import under_tuned
from twin.planning.types import Plan, Warning
from twin.reports.breakdown import mean
from twin.reports.interval import Circumstances, Known, Reach, circumstances, reach
from twin.reports.table import duration


@dataclass(frozen=True, slots=True)
class TunedStep:
    """The step under the tuned stack."""

    stack: str
    seconds: float
    at: Circumstances

    def held(self, step: Reach, seconds: float, known: Known, *, physics: bool = False) -> Reach:
        """The reach of a step of so many seconds, which holds this step, too."""
        other = reach(self.at, "step_seconds", known)
        moved = 0.0 if other is None or physics else other.centre
        return replace(step, other=log(self.seconds / seconds) + moved)

    def said(self, warnings: Sequence[Warning], seconds: float) -> tuple[Warning, ...]:
        """Warnings of a plan with the distance of its step of so many seconds."""
        moved = 100.0 * (self.seconds / seconds - 1.0)
        text = (
            f" Under {self.stack} the step takes {duration(self.seconds)} ({moved:+.1f} %); "
            "its 80 % interval holds both."
        )
        return tuple(
            replace(one, message=one.message + text) if one.code == "software-assumed" else one
            for one in warnings
        )


def tuned_step(plan: Plan, *, assumed: bool) -> TunedStep | None:
    """The step under the tuned stack; None where the software is not `assumed`."""
    scenario = under_tuned(plan.scenario) if assumed else None
    if scenario is None or scenario.software is None:
        return None
    other = make_plan(scenario)
    trace = simulate(lower(other))
    at = replace(circumstances(other, mean(trace.breakdown_ns, trace.ranks)), assumed=True)
    return TunedStep(scenario.software.name, trace.step_ns / 1e9, at)
