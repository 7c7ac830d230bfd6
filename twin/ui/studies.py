"""Studies of plans as the app asks for them: functions of questions, run in another process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from twin.answers.nearest import MemoryLever, levers
from twin.explore.study import (
    Attribution,
    Influence,
    Suggestion,
    attribution,
    influence,
    nearest_fit,
)
from twin.explore.study.hidden import HiddenExpert, hidden_expert
from twin.scenario import Scenario
from twin.ui.answers import Failure, Question, guarded, scenario_of
from twin.ui.worker import Note

_T = TypeVar("_T")


def nearest(asked: Question, note: Note) -> tuple[Suggestion, ...] | Failure:
    """The nearest plans that fit."""
    del note
    return _of(asked, nearest_fit)


def influences(asked: Question, note: Note) -> tuple[Influence, ...] | Failure:
    """How much each uncertain number matters."""
    return _of(asked, lambda scenario: influence(scenario, note))


def freeing(asked: Question, note: Note) -> tuple[MemoryLever, ...] | Failure:
    """What single changes would free on the fullest GPU, and what they cost."""
    del note
    return _of(asked, lambda scenario: levers(scenario, timed=True))


def hiding(asked: Question, note: Note) -> HiddenExpert | Failure:
    """The largest degree of expert parallelism that stays hidden, by events."""
    return _of(asked, lambda scenario: hidden_expert(scenario, note))


def attributed(base: Question, other: Question, note: Note) -> Attribution | Failure:
    """The difference of two plans, split over the inputs that differ."""

    def split(first: Scenario) -> Attribution | Failure:
        return _of(other, lambda second: attribution(first, second, progress=note))

    return _of(base, split)


def _of(asked: Question, study: Callable[[Scenario], _T | Failure]) -> _T | Failure:
    scenario = scenario_of(asked)
    if not isinstance(scenario, Scenario):
        return scenario
    return guarded(lambda: study(scenario))
