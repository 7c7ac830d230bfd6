"""Comparisons whose outcome a verifier knows: a right and a wrong answer to one question.

They teach a critic (as dialogues of `reference.sft`, or beside the objective), weigh its rubrics,
and tell how far it can be trusted.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reference.dialog import Dialog, Message, dialog_json
from reference.rl.critique.ranking import (
    FIRST,
    SECOND,
    Critic,
    Pair,
    Rubric,
    combined,
    dialog_of,
    outcomes,
)
from reference.rl.gym.support import fit


@dataclass(frozen=True, slots=True)
class Outcome:
    """Two answers to a question, of which a verifier takes the first and not the second."""

    question: str
    right: str
    wrong: str


def outcomes_of(
    groups: Iterable[tuple[str, Sequence[tuple[str, bool]]]], most: int, seed: int
) -> list[Outcome]:
    """Pairs of groups (a question, and answers with whether they are right), each answer once at
    most, in an order of the seed; so many at most."""
    found: list[Outcome] = []
    for question, answers in groups:
        right = [text for text, good in answers if good and text.strip()]
        wrong = [text for text, good in answers if not good and text.strip()]
        found += [Outcome(question, a, b) for a, b in zip(right, wrong, strict=False) if a != b]
    random.Random(f"outcomes {seed}").shuffle(found)
    return found[:most]


def dialogues(found: Sequence[Outcome], rubrics: Sequence[Rubric]) -> list[Dialog]:
    """What a critic should have said: each pair in both orders, under the rubrics in turn."""
    made: list[Dialog] = []
    for at, one in enumerate(found):
        pair = Pair(one.question, one.right, one.wrong, rubrics[at % len(rubrics)])
        for swapped, says in ((False, FIRST), (True, SECOND)):
            asked = dialog_of(pair, swapped=swapped)
            made.append(replace(asked, messages=(*asked.messages, Message("assistant", says))))
    return made


def rows(found: Sequence[Outcome], rubrics: Sequence[Rubric]) -> list[Mapping[str, Any]]:
    """The same as lines of a file that `reference.sft` learns from."""
    made = dialogues(found, rubrics)
    return [{"id": f"critique-{at}", **dialog_json(one)} for at, one in enumerate(made)]


def agreement(critic: Critic, found: Sequence[Outcome], rubrics: Sequence[Rubric]) -> float | None:
    """Share of the pairs of which the critic prefers the right one, ties half; None without
    any."""
    if not found:
        return None
    won = [combined(rubrics, one) for one in _asked(critic, found, rubrics)]
    return sum(0.5 if one == 0.5 else float(one > 0.5) for one in won) / len(won)


def refined(
    critic: Critic, found: Sequence[Outcome], rubrics: Sequence[Rubric], ridge: float = 0.05
) -> tuple[Rubric, ...]:
    """Rubrics weighed by how well each foretells what verifiers say: a logistic regression of the
    outcome on what the critic says under each, none below 0. Mandatory ones stay so. For a critic
    that cannot be trained itself; OURS."""
    if not found:
        return tuple(rubrics)
    won = [[one - 0.5 for one in said] for said in _asked(critic, found, rubrics)]
    both = [*won, *([-one for one in row] for row in won)]
    labels = [1.0] * len(won) + [0.0] * len(won)
    weights = fit(both, labels, ridge).weights
    return tuple(
        rubric.model_copy(update={"weight": min(100.0, max(0.0, weight))})
        for rubric, weight in zip(rubrics, weights, strict=False)
    )


def _asked(
    critic: Critic, found: Sequence[Outcome], rubrics: Sequence[Rubric]
) -> list[list[float]]:
    """For each pair what the right answer wins under each rubric."""
    pairs = [
        Pair(one.question, one.right, one.wrong, rubric) for one in found for rubric in rubrics
    ]
    said, each = outcomes(critic, pairs), len(rubrics)
    return [said[at * each : (at + 1) * each] for at in range(len(found))]
