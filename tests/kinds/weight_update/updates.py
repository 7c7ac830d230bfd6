"""Weight updates for tests: the shipped ones, under changes."""

from __future__ import annotations

from collections.abc import Sequence

import twin
from twin.kinds.weight_update.plan import UpdatePlan, UpdateTrace
from twin.kinds.weight_update.report import UpdateReport
from twin.loading import load_any
from twin.scenario import UpdateScenario

SMALL, LARGE, H800 = (f"kimi-k2-weight-update-{name}" for name in ("16xh20", "256xh20", "256xh800"))
QUICK = ("model=moonlight-16b-a3b", "weight_update.free_memory=3GiB", "weight_update.bucket=256MiB")
"""A small model in many buckets."""


def scenario(name: str = SMALL, *sets: str) -> UpdateScenario:
    found = load_any(name, sets)
    assert isinstance(found, UpdateScenario)
    return found


def planned(name: str = SMALL, *sets: str) -> UpdatePlan:
    return twin.plan(scenario(name, *sets))


def played(name: str = SMALL, *sets: str) -> UpdateTrace:
    return twin.simulate(twin.lower(planned(name, *sets)))


def reported(name: str = SMALL, *sets: str) -> UpdateReport:
    plan = planned(name, *sets)
    return twin.report(plan, twin.simulate(twin.lower(plan)))


def seconds(name: str = SMALL, *sets: str) -> float:
    return played(name, *sets).update_ns / 1e9


def changed(sets: Sequence[str], **fields: str) -> tuple[str, ...]:
    """The changes, with more of the section itself."""
    return (*sets, *(f"weight_update.{key}={value}" for key, value in fields.items()))
