"""Objectives of policy gradients: what a group of responses to one prompt teaches.

A step is the gradient of a weighted log-likelihood. If an objective L depends on the weights of the
model only through the log-probabilities of whole responses, then

    grad L = sum_k (dL / d log p_k) grad log p_k

and the policy-gradient weights dL / d log p_k are known before the backward pass. So every
objective here is a function from rewards and log-ratios to such weights, and the trainer's own loop
does the rest: cross-entropy whose tokens weigh minus the weight of their response.

Kimi K2's objective (report, section 3.2.3) is minimal where each response's log-ratio is its
advantage over `kl_weight`:

    L = mean_k (r_k - baseline - kl_weight log(p / p_old)_k)^2

There is no importance weight, no clipping, no division by a standard deviation and no value
network. OURS, as the report leaves it open: the size of `kl_weight`, and sums over tokens rather
than means.

Kimi K1.5's gradient (arXiv:2501.12599, equation 3), to be ascended:

    g = mean_k [ grad log p_k (r_k - mean r) - (kl_weight / 2) grad (log(p / p_old)_k)^2 ]

K2's objective has the gradient -2 kl_weight g: the same direction, and a size that vanishes with
`kl_weight`. Under Muon and AdamW, whose updates do not depend on the gradient's size, one step is
the same; with clipping, accumulation over prompts of other weights or an auxiliary loss it is not,
which is why both have a name.

A step (`learn`) computes log-probabilities, the policy-gradient weights, and the trainer's own step
on cross-entropy with these weights. The forward pass for the weights comes before that of the
gradients, so that each response is read twice: K2's error is of a whole response, known only behind
its last token.

Legend: K responses of a group, R rows of the step, B rows of a micro-batch, T tokens of a row, N
tokens that are learned, W words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from time import perf_counter
from typing import Annotated, Final, Literal

import torch
from pydantic import Field, Strict
from torch import Tensor

from reference.config import RunSpec
from reference.ending import Stop
from reference.metrics import StepMetrics
from reference.rl.batches import Batches, LearnFrom, ResponseRow, batch_of, cut, row_of, width_of
from reference.rl.records import PromptGroup
from reference.text.loader import IGNORED, Weighed
from reference.trainer.stages import Stage, balanced
from reference.trainer.step import train_step
from reference.trainer.trainee import Trainee
from twin.schedules.base import Action
from twin.spec.base import Flag, Spec

Baseline = Literal["mean", "log_z"]


@dataclass(frozen=True, slots=True)
class RewardGroup:
    """Responses of one policy to one prompt."""

    reward_K: Tensor
    """Of each response, in float64."""
    log_ratio_K: Tensor
    """log p(response) now less that under the policy that wrote it, in nats, float64: over the
    whole response, without tokens of others (tools, users)."""

    def __post_init__(self) -> None:
        if self.reward_K.shape != self.log_ratio_K.shape or self.reward_K.dim() != 1:
            shapes = f"{tuple(self.reward_K.shape)} and {tuple(self.log_ratio_K.shape)}"
            raise ValueError(f"rewards and log-ratios are not one each: {shapes}")


def baseline_of(reward_K: Tensor, kl_weight: float, kind: Baseline) -> Tensor:
    """What rewards are compared with.

    The optimum of reward less `kl_weight` times the divergence from the old policy has, for each
    response, r - kl_weight log Z = kl_weight log(p / p_old), with Z = E[exp(r / kl_weight)] over
    the old policy (K1.5, equation 2). `log_z` estimates that from the group. The `mean` of the
    rewards, which K2 uses, is its limit for a large `kl_weight`, and has another optimum
    (arXiv:2602.05933: a mixture of KL and chi-squared).
    """
    if kind == "mean":
        return reward_K.mean()
    return kl_weight * ((reward_K / kl_weight).logsumexp(0) - log(len(reward_K)))


def squared_error(group: RewardGroup, kl_weight: float, baseline: Baseline = "mean") -> Tensor:
    """K2's objective of a group, to be minimised."""
    return _errors(group, kl_weight, baseline).square().mean()


def squared_error_weights(
    group: RewardGroup, kl_weight: float, baseline: Baseline = "mean"
) -> Tensor:
    """Its derivative by the log-probability of each response, [K]."""
    errors_K = _errors(group, kl_weight, baseline)
    return -2 * kl_weight * errors_K / len(errors_K)


def kimi_k15_weights(group: RewardGroup, kl_weight: float, baseline: Baseline = "mean") -> Tensor:
    """Minus the factor of each grad log p in K1.5's gradient, [K]: to be descended, as a loss
    is."""
    errors_K = _errors(group, kl_weight, baseline)
    return -errors_K / len(errors_K)


def _errors(group: RewardGroup, kl_weight: float, baseline: Baseline) -> Tensor:
    advantage_K = group.reward_K - baseline_of(group.reward_K, kl_weight, baseline)
    return advantage_K - kl_weight * group.log_ratio_K


POLICY_GRADIENT_WEIGHTS: Final[Mapping[str, Callable[[RewardGroup, float, Baseline], Tensor]]] = {
    "kimi_k2": squared_error_weights,
    "kimi_k15": kimi_k15_weights,
}
"""By the `form` of an objective."""


def token_weights(weight_K: Tensor, targets_BT: Tensor, rows: Sequence[int]) -> Tensor:
    """The weight of each target, [B, T]: minus the policy-gradient weight of its response, since a
    response's log-probability is the sum over its own tokens. `rows` names the response of each
    row; targets of -100 weigh nothing."""
    weight_B = -weight_K[torch.tensor(rows, dtype=torch.long)]
    return torch.where(targets_BT == IGNORED, 0.0, weight_B[:, None])


Positive = Annotated[float, Strict(), Field(gt=0, le=1e3)]


class ObjectiveSpec(Spec):
    """The objective (`reference.rl.objective`)."""

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
class PolicyLogRatios:
    """The policy now, on the rows of a step."""

    log_ratio_R: Tensor
    """Of each response, float64, in nats: the policy now against the one that wrote it."""
    mismatch: float
    """Largest difference between the trainer's log-probability of a token that the newest weights
    wrote and the inference engine's, in nats: before the first update the error of their sums."""
    entropy: float
    """Mean over learned tokens of the policy's entropy, in nats."""
    tokens: int
    """Learned."""


@dataclass(frozen=True, slots=True)
class PolicyUpdate:
    """A step, and the policy before it."""

    step: StepMetrics | None
    """None where the loss is not finite."""
    before: PolicyLogRatios
    looked_s: float
    """Seconds of the pass for log-probabilities."""


def learn(  # noqa: PLR0913  a step's groups, and what it is beside
    run: RunSpec,
    trainee: Trainee,
    groups: Sequence[PromptGroup],
    spec: ObjectiveSpec,
    *,
    newest: int,
    beside: Sequence[Weighed] = (),
    pad_to: int = 1,
) -> PolicyUpdate:
    """A step on groups, each prompt with equal weight; `beside` are further micro-batches with
    their weights. `newest` is the version that wrote last. Rows are padded to multiples of
    `pad_to`."""
    tempered = spec.old == "behaviour"
    rows = [
        row_of(response, spec.learn_from, newest, tempered=tempered)
        for group in groups
        for response in group.responses
    ]
    began = perf_counter()
    before = look(run, trainee, rows, pad_to)
    looked_s = perf_counter() - began
    weight_R = policy_gradient_weights(groups, before.log_ratio_R, spec)
    step = _step(run, trainee, [*_batches(run, rows, weight_R, pad_to), *beside])
    return PolicyUpdate(step, before, looked_s)


def policy_gradient_weights(
    groups: Sequence[PromptGroup], log_ratio_R: Tensor, spec: ObjectiveSpec
) -> Tensor:
    """The derivative of the mean objective of the groups by each response's log-probability,
    [R]."""
    weights_of = POLICY_GRADIENT_WEIGHTS[spec.form]
    sizes = [len(group.responses) for group in groups]
    weights: list[Tensor] = []
    for group, log_ratio_K in zip(groups, log_ratio_R.split(sizes), strict=True):
        rewards = [response.reward for response in group.responses]
        rewarded = RewardGroup(torch.tensor(rewards, dtype=torch.float64), log_ratio_K)
        weights.append(weights_of(rewarded, spec.kl_weight, spec.baseline) / len(groups))
    return torch.cat(weights)


@torch.no_grad()
def look(
    run: RunSpec, trainee: Trainee, rows: Sequence[ResponseRow], pad_to: int = 1
) -> PolicyLogRatios:
    """Log-ratios of rows, and the policy's entropy on their learned tokens."""
    for model in trainee.models:
        model.eval()
    (model,) = trainee.models
    log_ratio_R = torch.zeros(len(rows), dtype=torch.float64)
    entropy, tokens, mismatch = 0.0, 0, 0.0
    for part in _micro_batches(run, rows):
        chosen = [rows[at] for at in part]
        tokens_BT, targets_BT = batch_of(chosen, width_of(chosen, pad_to, run.train.sequence))
        given = (tokens_BT.to(trainee.device), targets_BT)
        like = torch.empty((*tokens_BT.shape, model.spec.hidden), dtype=trainee.dtype)
        (logits_BTW,) = trainee.runtime.look(((Action("F", 0, 0),),), [given], like)
        learned_BT = targets_BT != IGNORED
        # Over all tokens most of this would be of prompts and padding.
        wide = torch.promote_types(logits_BTW.dtype, torch.float32)
        logits_NW = logits_BTW[learned_BT.to(trainee.device)].to(wide)
        wide_NW = logits_NW.log_softmax(-1).cpu()
        now_N = wide_NW.gather(-1, targets_BT[learned_BT][:, None])[:, 0].double()
        width = tokens_BT.shape[1]
        then_N = _targets([row.then for row in chosen], width, 0.0)[learned_BT]
        checks_N = _targets([row.checks for row in chosen], width, torch.nan)[learned_BT]
        away_BT = torch.zeros_like(targets_BT, dtype=torch.float64)
        away_BT[learned_BT] = now_N - then_N
        log_ratio_R[part] = away_BT.sum(1)
        # Each token's in its own numbers: torch adds fp32 in float64 ten times as slowly.
        entropy -= (wide_NW.exp() * wide_NW).sum(-1).double().sum().item()
        tokens += int(learned_BT.sum())
        differences_N = torch.where(checks_N.isnan(), 0.0, (now_N - checks_N).abs())
        mismatch = max([mismatch, *differences_N.tolist()])
    return PolicyLogRatios(log_ratio_R, mismatch, entropy / max(1, tokens), tokens)


def _targets(rows: Sequence[Sequence[float]], width: int, fill: float) -> Tensor:
    """A number of each target, [B, T], float64."""
    values_BT = torch.full((len(rows), width), fill, dtype=torch.float64)
    for at, row in enumerate(rows):
        values_BT[at, : len(row) - 1] = torch.tensor(row[1:], dtype=torch.float64)
    return values_BT


def _micro_batches(run: RunSpec, rows: Sequence[ResponseRow]) -> list[list[int]]:
    """Rows of similar length together."""
    order = sorted(range(len(rows)), key=lambda at: (rows[at].width, at))
    return cut(order, run.train.micro_batch)


def _batches(
    run: RunSpec, rows: Sequence[ResponseRow], weight_R: Tensor, pad_to: int
) -> list[Weighed]:
    most = run.train.sequence
    width = width_of(rows, pad_to, most) if run.balance.sequence_loss else None
    batches: list[Weighed] = []
    for part in _micro_batches(run, rows):
        chosen = [rows[at] for at in part]
        tokens_BT, targets_BT = batch_of(chosen, width or width_of(chosen, pad_to, most))
        batches.append((tokens_BT, targets_BT, token_weights(weight_R, targets_BT, part)))
    return batches


def _step(run: RunSpec, trainee: Trainee, batches: Sequence[Weighed]) -> StepMetrics | None:
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
