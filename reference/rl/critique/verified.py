"""Comparisons whose outcome a verifier knows: a right and a wrong answer to one question.

They teach a critic (as dialogues of `reference.sft`, or beside the objective), weigh its rubrics,
and measure how far it can be trusted.
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
    AnswerPair,
    Critic,
    Rubric,
    combined,
    dialog_of,
    outcomes_by_rubric,
)
from reference.rl.gym.support import fit_logistic

QuestionAnswers = tuple[str, Sequence[tuple[str, bool]]]
"""A question, and answers with whether they are right."""


@dataclass(frozen=True, slots=True)
class VerifiedPair:
    """Two answers to a question, of which a verifier accepts the first only."""

    question: str
    right: str
    wrong: str


def verified_pairs(groups: Iterable[QuestionAnswers], most: int, seed: int) -> list[VerifiedPair]:
    """At most so many pairs, in an order of the seed, each answer in one of them at most."""
    pairs: list[VerifiedPair] = []
    for question, answers in groups:
        right = [text for text, good in answers if good and text.strip()]
        wrong = [text for text, good in answers if not good and text.strip()]
        both = zip(right, wrong, strict=False)
        pairs += [VerifiedPair(question, good, bad) for good, bad in both if good != bad]
    random.Random(f"outcomes {seed}").shuffle(pairs)
    return pairs[:most]


def comparison_dialogs(pairs: Sequence[VerifiedPair], rubrics: Sequence[Rubric]) -> list[Dialog]:
    """The right answers of a critic: each pair in both orders, under the rubrics in turn."""
    dialogs: list[Dialog] = []
    for at, each in enumerate(pairs):
        pair = AnswerPair(each.question, each.right, each.wrong, rubrics[at % len(rubrics)])
        for swapped, says in ((False, FIRST), (True, SECOND)):
            asked = dialog_of(pair, swapped=swapped)
            dialogs.append(replace(asked, messages=(*asked.messages, Message("assistant", says))))
    return dialogs


def comparison_rows(
    pairs: Sequence[VerifiedPair], rubrics: Sequence[Rubric]
) -> list[Mapping[str, Any]]:
    """The same as lines of a file that `reference.sft` learns from."""
    dialogs = comparison_dialogs(pairs, rubrics)
    return [{"id": f"critique-{at}", **dialog_json(dialog)} for at, dialog in enumerate(dialogs)]


def agreement(
    critic: Critic, pairs: Sequence[VerifiedPair], rubrics: Sequence[Rubric]
) -> float | None:
    """Share of the pairs whose right answer the critic prefers, ties half; None without any."""
    if not pairs:
        return None
    won = [combined(rubrics, said) for said in _outcomes(critic, pairs, rubrics)]
    return sum(0.5 if each == 0.5 else float(each > 0.5) for each in won) / len(won)


def refined(
    critic: Critic, pairs: Sequence[VerifiedPair], rubrics: Sequence[Rubric], ridge: float = 0.05
) -> tuple[Rubric, ...]:
    """Rubrics weighed by how well each predicts the verifiers: a logistic regression of the outcome
    on the critic's outcomes under each, none below 0. Mandatory ones stay so. For a critic that
    cannot be trained itself; OURS."""
    if not pairs:
        return tuple(rubrics)
    won = [[each - 0.5 for each in said] for said in _outcomes(critic, pairs, rubrics)]
    both = [*won, *([-each for each in row] for row in won)]
    labels = [1.0] * len(won) + [0.0] * len(won)
    weights = fit_logistic(both, labels, ridge).weights
    return tuple(
        rubric.model_copy(update={"weight": min(100.0, max(0.0, weight))})
        for rubric, weight in zip(rubrics, weights, strict=False)
    )


def _outcomes(
    critic: Critic, pairs: Sequence[VerifiedPair], rubrics: Sequence[Rubric]
) -> list[Sequence[float]]:
    """How likely the right answer of each pair is the better one, under each rubric."""
    answers = [(pair.question, pair.right, pair.wrong) for pair in pairs]
    return outcomes_by_rubric(critic, answers, rubrics)
