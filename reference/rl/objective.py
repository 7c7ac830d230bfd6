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

Legend: K responses of a group, B rows, T tokens of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Final, Literal

import torch
from torch import Tensor

from reference.text.loader import IGNORED

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
