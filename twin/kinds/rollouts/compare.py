"""Rollouts side by side. What engines do sums to an iteration's rollouts, and so do its
differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from twin.kinds.rollouts.answer import KIND, RolloutAnswer
from twin.kinds.rollouts.types import SPENT, Spent
from twin.planning.types import Warning
from twin.reports.compare import FieldDifference, differences
from twin.reports.side_by_side import Kind, SideBySide, side_by_side
from twin.spec.kpis import ROLLOUT_KPIS

_WORK: Final = (
    "model",
    "rl.rollout.model",
    "rl.rollout.requests",
    "rl.rollout.prompt",
    "rl.rollout.written",
    "rl.rollout.turns",
    "rl.rollout.read",
    "rl.rollout.partial",
)
"""What is written in an iteration, and by whom; partial rollouts leave requests to the next one."""


def compare(answers: Sequence[RolloutAnswer]) -> SideBySide[RolloutAnswer]:
    """Rollouts of two or more scenarios side by side, the first as baseline.

    Raises ValueError for fewer than two answers.
    """
    return side_by_side(ROLLOUTS, answers)


def is_other_work(paths: Iterable[str]) -> bool:
    """Whether rollouts that differ in these fields do not write the same."""
    return any(path == one or path.startswith(f"{one}.") for path in paths for one in _WORK)


def other_work(fields: Iterable[FieldDifference]) -> tuple[Warning, ...]:
    """That rollouts with these differences do not write the same, where they do not."""
    if not is_other_work(field.path for field in fields):
        return ()
    message = "Not the same is written in an iteration: compare tokens per second, not seconds."
    return (Warning("different-work", message),)


def _spent(answer: RolloutAnswer) -> Mapping[Spent, float]:
    """Seconds of an iteration that a mean engine spends on each."""
    return {key: share * answer.seconds for key, share in answer.spent.items()}


def _notes(baseline: RolloutAnswer, candidate: RolloutAnswer) -> tuple[Warning, ...]:
    return other_work(differences(baseline.scenario, candidate.scenario))


ROLLOUTS: Final[Kind[RolloutAnswer]] = Kind(
    name=KIND,
    subject="rollouts are",
    length="rollout_seconds",
    kpis=ROLLOUT_KPIS,
    parts="spent",
    changes_most="what changes most is the time that engines spend on",
    words=SPENT,
    seconds=_spent,
    notes=_notes,
)
