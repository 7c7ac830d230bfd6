"""The reward of a response: its verdict, less the penalties of budget control.

K2 bounds the tokens of each response by its kind of task, cuts what is longer, and penalises it
(report, section 3.2.3); K1.5 penalises repeats (section 2.6.2). The sizes are OURS. Several rewards
may be weighed against each other: `python -m reference.rl.pareto` draws what that trades.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, Strict

from reference.rl.records import PromptGroup, Response
from twin.spec.base import Flag, Spec

Weight = Annotated[float, Strict(), Field(ge=-100, le=100)]
"""What a reward counts."""
Penalty = Annotated[float, Strict(), Field(ge=0, le=100)]
"""What a reward is lowered by."""


class RewardsSpec(Spec):
    """How verdicts become rewards."""

    of: Literal["success", "score"] = "success"
    """success: 1 where every criterion holds, else 0; score: the share that holds."""
    weights: dict[str, Weight] = Field(default_factory=dict)
    """Several rewards and what each counts, in the place of `of`: success; score; length (K1.5's,
    0.5 for the shortest of a group, -0.5 for the longest, never above 0 for a wrong one); or the
    name of a criterion of the tasks."""
    over_budget: Penalty = 0.5
    """Taken off a response that met the bound on its tokens."""
    repeat: Penalty = 0.5
    """Taken off one that went round in circles."""
    shuffle: Flag = False
    """Deal the rewards of an iteration out anew, at random: a control that must not learn."""


def reward(
    response: Response,
    spec: RewardsSpec,
    group: Sequence[Response] = (),
    ranked: float | None = None,
) -> float:
    """The reward of a judged response in its group; `ranked` stands for its verdict."""
    if ranked is not None:
        worth = ranked
    elif spec.weights:
        parts = ((weight, part(response, name, group)) for name, weight in spec.weights.items())
        worth = sum(weight * response for weight, response in parts)
    else:
        worth = part(response, spec.of, group)
    if response.ended in ("budget", "context"):
        worth -= spec.over_budget
    if response.ended == "repeat":
        worth -= spec.repeat
    return worth


def part(response: Response, name: str, group: Sequence[Response]) -> float:
    """One reward of a judged response, by its name in `weights`."""
    verdict = response.verdict
    assert verdict is not None, "it was judged"
    match name:
        case "success":
            return float(verdict.success)
        case "score":
            return verdict.score
        case "length":
            return _length(response, [each.written for each in group], right=verdict.success)
        case _:
            return float(verdict.checks.get(name, False))


def _length(response: Response, written: Sequence[int], *, right: bool) -> float:
    """Kimi K1.5 (arXiv:2501.12599), section 2.3.3; 0 where all are equally long."""
    least, most = min(written, default=0), max(written, default=0)
    if least == most:
        return 0.0
    worth = 0.5 - (response.written - least) / (most - least)
    return worth if right else min(0.0, worth)


def parts(groups: Sequence[PromptGroup], spec: RewardsSpec) -> dict[str, float]:
    """Mean of each reward that is weighed, over all responses."""
    pairs = [(response, group.responses) for group in groups for response in group.responses]
    return {
        name: sum(part(response, name, group) for response, group in pairs) / len(pairs)
        for name in spec.weights
        if pairs
    }


def give(
    groups: Sequence[PromptGroup],
    spec: RewardsSpec,
    seed: int,
    ranked: Mapping[tuple[int, int], float] | None = None,
) -> None:
    """Set the rewards of an iteration's responses; `seed` is for shuffling, `ranked` holds a
    critic's win rates of responses that cannot be verified, by their keys."""
    pairs = [(response, group.responses) for group in groups for response in group.responses]
    won = ranked or {}
    rewards = [reward(each, spec, group, won.get(each.key)) for each, group in pairs]
    if spec.shuffle:
        random.Random(seed).shuffle(rewards)
    for (response, _), worth in zip(pairs, rewards, strict=True):
        response.reward = worth
