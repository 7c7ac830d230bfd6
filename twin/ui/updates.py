"""Answers to weight updates. They take a fraction of a second, so they are made while the page is
drawn; what a scenario says does not depend on who asks, so they are shared."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from twin.kinds import weight_update
from twin.kinds.weight_update import UpdateProgram, UpdateReport, UpdateTrace
from twin.kinds.weight_update.alternatives import Alternative, alternatives
from twin.loading import load_any
from twin.reports.summary import Run as Circumstances
from twin.scenario import UpdateScenario
from twin.ui.answers import Failure, guarded

_KEPT: Final = 64
"""Answers kept."""


@dataclass(frozen=True, slots=True)
class Update:
    """A weight update, answered."""

    scenario: UpdateScenario
    program: UpdateProgram
    trace: UpdateTrace
    report: UpdateReport
    others: tuple[Alternative, ...]


@lru_cache(_KEPT)
def answer(file: str, sets: tuple[str, ...], as_of: int) -> Update | Failure:
    """The answer to a scenario under edits, with the files as they stood at `as_of`."""
    del as_of
    return guarded(lambda: _answer(file, sets))


def _answer(file: str, sets: tuple[str, ...]) -> Update:
    scenario = load_any(file, sets)
    assert isinstance(scenario, UpdateScenario), "only weight updates are offered"
    plan = weight_update.plan(scenario)
    program = weight_update.lower(plan)
    trace = weight_update.simulate(program)
    words = (word for text in sets for word in ("--set", text))
    report = weight_update.report(
        plan, trace, Circumstances(command=shlex.join(["twin", "run", file, *words]))
    )
    return Update(scenario, program, trace, report, alternatives(scenario, report))
