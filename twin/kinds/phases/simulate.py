"""Plan to trace of a run in phases: the step of each phase that can be costed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from twin.engine import lower
from twin.engine import simulate as simulate_step
from twin.kinds.base import Run, Tools, kind_named
from twin.kinds.phases.plan import NAME, PhaseCheck, PhasesPlan
from twin.loading import scenario_hash
from twin.planning import plan as plan_step
from twin.reports import report as report_step
from twin.reports.head import UNTIMED
from twin.scenario import Scenario

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class PhasesTrace:
    """The answered step of every phase, as it is written or as the nearest plan that fits; None
    where nothing near fits."""

    kind: ClassVar[str] = NAME

    steps: tuple[Run | None, ...]
    fidelity: str


def simulate(plan: PhasesPlan, tools: Tools) -> PhasesTrace:
    """Simulate every phase's step once; phases with the same step share it."""
    player = _Player(tools, max(1, len(plan.checks)))
    chosen = (costed(check) for check in plan.checks)
    steps = tuple(player.answer(one) if one else player.skip() for one in chosen)
    return PhasesTrace(steps, tools.fidelity)


def costed(check: PhaseCheck) -> Scenario | None:
    """What stands for a phase: itself, or the nearest plan that fits; None where there is none."""
    if check.fits:
        return check.scenario
    return check.nearest[0].scenario if check.nearest else None


@dataclass(slots=True)
class _Player:
    """Steps that were answered already, by the hash of their scenario."""

    tools: Tools
    steps: int
    answered: dict[str, Run] = field(default_factory=dict[str, Run])
    begun: int = 0

    def skip(self) -> None:
        """Count a phase that has no step."""
        self.begun += 1

    def answer(self, scenario: Scenario) -> Run:
        """The answer to a phase's scenario."""
        before, self.begun = self.begun, self.begun + 1
        identity = scenario_hash(scenario)
        if identity not in self.answered:
            step = self.tools.step or _anew
            self.answered[identity] = step(scenario, self._progress(before))
        return self.answered[identity]

    def _progress(self, before: int) -> Progress | None:
        progress = self.tools.progress
        if progress is None:
            return None
        return lambda share: progress((before + share) / self.steps)


def _anew(scenario: Scenario, progress: Progress | None) -> Any:
    planned = plan_step(scenario)
    trace = simulate_step(lower(planned), progress)
    answer = report_step(planned, trace, UNTIMED)
    return Run(kind_named("step"), scenario, planned, trace, answer)
