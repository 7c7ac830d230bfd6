"""What a response is worth: its verdict, less the penalties of budget control.

K2 bounds the tokens of each response by its kind of task, cuts what is longer, and penalises it
(report, section 3.2.3); K1.5 penalises repeats (section 2.6.2). The sizes are OURS.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, Strict

from reference.rl.records import Asked, Response
from twin.spec.base import Flag, Spec

Penalty = Annotated[float, Strict(), Field(ge=0, le=100)]
"""What a reward is lowered by."""


class RewardsSpec(Spec):
    """What is counted of a verdict, and what is taken off."""

    of: Literal["success", "score"] = Field(
        default="success",
        description="success: 1 where every criterion holds, else 0; score: the share that holds",
    )
    over_budget: Penalty = Field(
        default=0.5, description="taken off a response that met the bound on its tokens"
    )
    repeat: Penalty = Field(default=0.5, description="taken off one that went round in circles")
    shuffle: Flag = Field(
        default=False,
        description="deal the rewards of an iteration out anew, at random: a control that must "
        "not learn",
    )


def reward(response: Response, spec: RewardsSpec) -> float:
    """Of a response that was judged."""
    verdict = response.verdict
    assert verdict is not None, "it was judged"
    worth = float(verdict.success) if spec.of == "success" else verdict.score
    if response.ended in ("budget", "context"):
        worth -= spec.over_budget
    if response.ended == "repeat":
        worth -= spec.repeat
    return worth


def give(groups: Sequence[Asked], spec: RewardsSpec, seed: int) -> None:
    """Put rewards into the responses of an iteration; `seed` is of the shuffled ones."""
    responses = [one for asked in groups for one in asked.responses]
    found = [reward(one, spec) for one in responses]
    if spec.shuffle:
        random.Random(seed).shuffle(found)
    for one, worth in zip(responses, found, strict=True):
        one.reward = worth
