"""The same update by other pipelines: two stages or three, broadcast or point to point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from twin.errors import ScenarioError
from twin.kinds.weight_update.lower import lower
from twin.kinds.weight_update.plan import plan
from twin.kinds.weight_update.report import UpdateReport
from twin.kinds.weight_update.simulate import simulate
from twin.scenario import UpdateScenario

_METHODS: Final = ("broadcast", "p2p")
_STAGES: Final = ("two", "three")


@dataclass(frozen=True, slots=True)
class Alternative:
    """One pipeline: how long it takes, whether its buffers fit, and how many times longer it takes
    than the one that was asked about, less one (None: this is it)."""

    method: str
    stages: str
    seconds: float
    change: float | None
    fits: bool


def alternatives(scenario: UpdateScenario, report: UpdateReport) -> tuple[Alternative, ...]:
    """Every pipeline that the event allows, the asked one among them."""
    found: list[Alternative] = []
    for method in _METHODS:
        for stages in _STAGES:
            if (method, stages) == (report.travel.method, report.travel.stages):
                seconds = report.update_ns / 1e9
                found.append(Alternative(method, stages, seconds, None, report.fits))
            elif one := _other(scenario, method, stages, report.update_ns / 1e9):
                found.append(one)
    return tuple(found)


def _other(scenario: UpdateScenario, method: str, stages: str, now: float) -> Alternative | None:
    """Another pipeline; None where there is none."""
    update = scenario.weight_update.model_copy(update={"method": method, "stages": stages})
    try:
        made = plan(scenario.model_copy(update={"weight_update": update}))
    except ScenarioError:
        return None
    seconds = simulate(lower(made)).update_ns / 1e9
    return Alternative(method, stages, seconds, seconds / now - 1, made.memory.fits)
