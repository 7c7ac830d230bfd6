"""All answers to a question against each other: the share of pairs that each wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

from reference.rl.critique.compare import Critic, Pair, outcomes
from reference.rl.critique.rubric import Rubric

SURE: Final = 0.9
"""A mandatory rubric decides a pair from this share on. OURS: the report's rubrics are prose."""


def win_rates(
    critic: Critic, question: str, answers: Sequence[str], rubrics: Sequence[Rubric]
) -> list[float]:
    """For each answer the mean over the others of what it wins against them, 0 to 1; their mean is
    one half. Empty answers lose to others, unasked. OURS: the report says no scalar."""
    places = list(combinations(range(len(answers)), 2))
    asked = [pair for pair in places if answers[pair[0]].strip() and answers[pair[1]].strip()]
    pairs = [
        Pair(question, answers[one], answers[other], rubric)
        for one, other in asked
        for rubric in rubrics
    ]
    said, each = outcomes(critic, pairs), len(rubrics)
    known = {
        pair: combined(rubrics, said[at * each : (at + 1) * each]) for at, pair in enumerate(asked)
    }
    won = [0.0] * len(answers)
    for one, other in places:
        share = known.get((one, other), _unasked(answers[one], answers[other]))
        won[one] += share
        won[other] += 1 - share
    return [one / max(1, len(answers) - 1) for one in won]


def combined(rubrics: Sequence[Rubric], said: Sequence[float]) -> float:
    """What an answer wins by outcomes under several rubrics: their weighted mean, unless mandatory
    ones are lost or won for sure, all one way."""
    must = [one for rubric, one in zip(rubrics, said, strict=True) if rubric.mandatory]
    won, lost = any(one >= SURE for one in must), any(one <= 1 - SURE for one in must)
    if won != lost:
        return float(won)
    total = sum(rubric.weight for rubric in rubrics)
    weighed = sum(rubric.weight * one for rubric, one in zip(rubrics, said, strict=True))
    return weighed / total if total else 0.5


def with_weights(rubrics: Sequence[Rubric], weights: Mapping[str, float]) -> tuple[Rubric, ...]:
    """The rubrics with other weights, by name."""
    return tuple(
        one.model_copy(update={"weight": weights.get(one.name, one.weight)}) for one in rubrics
    )


def _unasked(one: str, other: str) -> float:
    return 0.5 if bool(one.strip()) == bool(other.strip()) else float(bool(one.strip()))
