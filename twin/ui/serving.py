"""Answers about the engines of a plan. They take a fraction of a second, so they are made while the
page is drawn; what a plan says does not depend on who asks, so they are shared."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from twin.reports.serving import NONE, Serving, serving
from twin.scenario import Scenario
from twin.ui.answers import Failure, Question, Refusal, guarded, scenario_of

_KEPT: Final = 32
"""Answers kept."""


@lru_cache(_KEPT)
def engines(asked: Question) -> tuple[Serving, ...] | Failure:
    """Every engine of a plan over users and context."""
    scenario = scenario_of(asked)
    if not isinstance(scenario, Scenario):
        return scenario
    return guarded(lambda: serving(scenario))


def declares_none(failure: Failure) -> bool:
    """Whether all that is wrong is that the plan has no engine."""
    return isinstance(failure, Refusal) and {one.code for one in failure.problems} == {NONE.code}
