"""One optimizer step on groups of responses: log-probabilities now, slopes of the objective by
them, and the trainer's own step on cross-entropy that is weighted by the slopes.

The forward pass of the slopes comes before that of the gradients, so that each response is read
twice: K2's error is of a whole response, known only behind its last token.

Legend: K responses of a group, R rows of the step, B rows of a micro-batch, T tokens of a row, N
tokens that are learned, W words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Annotated, Literal

import torch
from pydantic import Field, Strict
from torch import Tensor

from reference.config import RunSpec
from reference.ending import Stop
from reference.metrics import Step
from reference.rl.batches import Batches, LearnFrom, Row, batch_of, cut, row_of
from reference.rl.objective import Baseline, Group, kimi_k15_weights, squared_error_weights
from reference.rl.objective import token_weights as weighted
from reference.rl.records import Asked
from reference.text.loader import IGNORED, Weighed
from reference.trainer.balance import balanced
from reference.trainer.stages import Stage
from reference.trainer.step import train_step
from reference.trainer.trainee import Trainee
from twin.schedules import Action
from twin.spec.base import DocumentedSpec, Flag

Positive = Annotated[float, Strict(), Field(gt=0, le=1e3)]
SLOPES = {"kimi_k2": squared_error_weights, "kimi_k15": kimi_k15_weights}


class ObjectiveSpec(DocumentedSpec):
    """What is descended (`reference.rl.objective`)."""

    form: Literal["kimi_k2", "kimi_k15"] = "kimi_k2"
    """kimi_k2: the squared error of whole responses; kimi_k15: the same direction, with a size that
    does not vanish with `kl_weight`."""
    baseline: Baseline = "mean"
    """What a reward is compared with: the group's mean, or log Z."""
    kl_weight: Positive = 0.1
    """Price of a nat away from the policy that wrote; OURS."""
    learn_from: LearnFrom = "all"
    """all: every token that a policy wrote; newest: those of the iteration's own policy alone,
    earlier segments of a paused response are read and not learned."""
    old: Literal["behaviour", "policy"] = "behaviour"
    """Old log-probabilities: of what tokens were drawn from, temperature and cuts included, or of
    the policy at temperature 1."""
    reset_optimizer: Flag = False
    """Forget momentum in each iteration, since the policy that is compared with is another (K1.5,
    section 2.3; K2 does not say)."""


@dataclass(frozen=True, slots=True)
class Learned:
    """A step, and what was seen on the way."""

    step: Step | None
    """None where the loss is no number."""
    log_ratio: float
    """Mean over responses, in nats: the policy now against the one that wrote."""
    mismatch: float
    """Largest difference between the trainer's log-probability of a token that the newest weights
    wrote and the inference engine's, in nats: before the first update the error of their sums."""
    entropy: float
    """Mean over learned tokens of the policy's entropy, in nats."""
    tokens: int
    """Learned."""
    looked_s: float
    """Seconds of the pass for log-probabilities."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The policy now, on the rows of a step."""

    log_ratio_R: Tensor
    """Float64."""
    mismatch: float
    entropy: float
    tokens: int


def learn(
    run: RunSpec,
    trainee: Trainee,
    groups: Sequence[Asked],
    spec: ObjectiveSpec,
    *,
    newest: int,
    beside: Sequence[Weighed] = (),
) -> Learned:
    """A step on groups, each prompt alike; `beside` are further micro-batches, weighted as they
    are. `newest` is the version that wrote last."""
    tempered = spec.old == "behaviour"
    rows = [
        row_of(one, spec.learn_from, newest, tempered=tempered)
        for asked in groups
        for one in asked.responses
    ]
    began = perf_counter()
    looked = look(run, trainee, rows)
    looked_s = perf_counter() - began
    slope_R = slopes_of(groups, looked.log_ratio_R, spec)
    batches = [*_batches(run, rows, slope_R), *beside]
    made = _step(run, trainee, batches)
    share = looked.log_ratio_R.mean().item()
    return Learned(made, share, looked.mismatch, looked.entropy, looked.tokens, looked_s)


def slopes_of(groups: Sequence[Asked], log_ratio_R: Tensor, spec: ObjectiveSpec) -> Tensor:
    """The derivative of the mean objective of the groups by each response's log-probability."""
    found: list[Tensor] = []
    first = 0
    for asked in groups:
        count = len(asked.responses)
        rewards = [one.reward for one in asked.responses]
        reward_K = torch.tensor(rewards, dtype=torch.float64)
        group = Group(reward_K, log_ratio_R[first : first + count])
        found.append(SLOPES[spec.form](group, spec.kl_weight, spec.baseline) / len(groups))
        first += count
    return torch.cat(found)


@torch.no_grad()
def look(run: RunSpec, trainee: Trainee, rows: Sequence[Row]) -> Looked:
    """Log-ratios of rows, and the policy's entropy on what is learned of them."""
    for model in trainee.models:
        model.eval()
    (model,) = trainee.models
    ratios = torch.zeros(len(rows), dtype=torch.float64)
    entropy, tokens, mismatch = 0.0, 0, 0.0
    for part in _micro_batches(run, rows):
        chosen = [rows[at] for at in part]
        tokens_BT, targets_BT = batch_of(chosen)
        given = (tokens_BT.to(trainee.device), targets_BT)
        like = torch.empty((*tokens_BT.shape, model.spec.hidden), dtype=trainee.dtype)
        (logits_BTW,) = trainee.runtime.look(((Action("F", 0, 0),),), [given], like)
        learned_BT = targets_BT != IGNORED
        # Over all tokens most of this would be of prompts and padding.
        wide_NW = logits_BTW[learned_BT.to(trainee.device)].double().log_softmax(-1).cpu()
        now_N = wide_NW.gather(-1, targets_BT[learned_BT][:, None])[:, 0]
        then_N, checks_N = (one[learned_BT] for one in _then(chosen, tokens_BT.shape[1]))
        away_BT = torch.zeros_like(targets_BT, dtype=torch.float64)
        away_BT[learned_BT] = now_N - then_N
        ratios[part] = away_BT.sum(1)
        entropy -= (wide_NW.exp() * wide_NW).sum().item()
        tokens += int(learned_BT.sum())
        found_N = torch.where(checks_N.isnan(), 0.0, (now_N - checks_N).abs())
        mismatch = max([mismatch, *found_N.tolist()])
    return Looked(ratios, mismatch, entropy / max(1, tokens), tokens)


def _then(rows: Sequence[Row], width: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities of targets when they were written, [B, T], and those that must be found
    again, no numbers elsewhere."""
    then_BT = torch.zeros(len(rows), width, dtype=torch.float64)
    checks_BT = torch.full_like(then_BT, torch.nan)
    for at, row in enumerate(rows):
        then_BT[at, : len(row.ids) - 1] = torch.tensor(row.then[1:], dtype=torch.float64)
        checks = [torch.nan if one is None else one for one in row.checks[1:]]
        checks_BT[at, : len(row.ids) - 1] = torch.tensor(checks, dtype=torch.float64)
    return then_BT, checks_BT


def _micro_batches(run: RunSpec, rows: Sequence[Row]) -> list[list[int]]:
    """Rows of like length together."""
    order = sorted(range(len(rows)), key=lambda at: (rows[at].width, at))
    return cut(order, run.train.micro_batch)


def _batches(run: RunSpec, rows: Sequence[Row], slope_R: Tensor) -> list[Weighed]:
    width = max(row.width for row in rows) if run.balance.sequence_loss else None
    found: list[Weighed] = []
    for part in _micro_batches(run, rows):
        tokens_BT, targets_BT = batch_of([rows[at] for at in part], width)
        found.append((tokens_BT, targets_BT, weighted(slope_R, targets_BT, part)))
    return found


def _step(run: RunSpec, trainee: Trainee, batches: Sequence[Weighed]) -> Step | None:
    """The trainer's step on these micro-batches."""
    assert isinstance(trainee.loader, Batches)
    width = max(tokens_BT.shape[1] for tokens_BT, _, _ in batches)
    stage = Stage(
        name="rl",
        first=trainee.step,
        end=trainee.step + 1,
        sequence=width,
        micro_batch=run.train.micro_batch,
        accumulate=len(batches),
        rope=trainee.models[0].spec.rope,
        rates=None,
    )
    trainee.loader.left = list(batches)
    share = run.balance.sequence_loss / len(batches)
    with balanced(trainee.models, share, width):
        return train_step(run, stage, trainee, Stop()).step
