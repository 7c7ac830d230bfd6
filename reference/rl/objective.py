"""The responses to one prompt, as far as an objective sees them. Legend: K responses.

What the reward of a response is compared with. Legend: K responses of a group.

The optimum of reward less `kl_weight` times the divergence from the old policy has, for each
response, r - kl_weight log Z = kl_weight log(p / p_old), with Z = E[exp(r / kl_weight)] over the
old policy (K1.5, arXiv:2501.12599, equation 2). `log_z` estimates that from the group; the `mean`
of the rewards, which K2 uses (report, section 3.2.3), is its limit for a large `kl_weight`, and has
another optimum (arXiv:2602.05933: a mixture of KL and chi-squared).

Kimi K2's objective (report, section 3.2.3), on whole sequences. Legend: K responses.

    L = mean_k (r_k - baseline - kl_weight log(p / p_old)_k)^2

It is minimal where each response's log-ratio is its advantage over `kl_weight`. There is no
importance weight, no clipping, no division by a standard deviation and no value network. OURS, as
the report leaves it open: the size of `kl_weight`, and sums over tokens rather than means.

Kimi K1.5's gradient (arXiv:2501.12599, equation 3). Legend: K responses of a group.

    g = mean_k [ grad log p_k (r_k - mean r) - (kl_weight / 2) grad (log(p / p_old)_k)^2 ]

to be ascended. K2's objective has the gradient -2 kl_weight g: the same direction in which to go,
and a size that vanishes with `kl_weight`. Under Muon and AdamW, whose updates do not depend on the
gradient's size, one step is the same; with clipping, accumulation over prompts of other weights or
an auxiliary loss it is not, which is why both have a name.

Slopes of responses as weights of tokens. Legend: K responses, B rows, T tokens of a row.

A response's log-probability is the sum over its own tokens, so each of them has the response's
slope: minimising sum_t w_t nll_t with w = -slope (`Transformer.loss` with weights) descends the
objective.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Final, Literal

import torch
from torch import Tensor
from torch.nn import functional

from reference.text.loader import IGNORED


@dataclass(frozen=True, slots=True)
class Group:
    """Responses that one policy gave to one prompt."""

    reward_K: Tensor
    """Of each response, in float64."""
    log_ratio_K: Tensor
    """log p(response) now less that under the policy that wrote it, in nats, float64: over the
    whole response, tokens that others wrote (tools, users) left out."""

    def __post_init__(self) -> None:
        if self.reward_K.shape != self.log_ratio_K.shape or self.reward_K.dim() != 1:
            shapes = f"{tuple(self.reward_K.shape)} and {tuple(self.log_ratio_K.shape)}"
            raise ValueError(f"rewards and log-ratios are not one each: {shapes}")


Baseline = Literal["mean", "log_z"]


def mean(reward_K: Tensor, kl_weight: float) -> Tensor:
    """The mean reward."""
    del kl_weight
    return reward_K.mean()


def log_z(reward_K: Tensor, kl_weight: float) -> Tensor:
    """kl_weight times the logarithm of the mean of exp(reward / kl_weight)."""
    scaled_K = reward_K / kl_weight
    return kl_weight * (scaled_K.logsumexp(0) - log(len(reward_K)))


BASELINES: Final[Mapping[Baseline, Callable[[Tensor, float], Tensor]]] = {
    "mean": mean,
    "log_z": log_z,
}


def squared_error(group: Group, kl_weight: float, baseline: Baseline = "mean") -> Tensor:
    """The objective of a group, to be minimised."""
    return _errors(group, kl_weight, baseline).square().mean()


def squared_error_weights(group: Group, kl_weight: float, baseline: Baseline = "mean") -> Tensor:
    """Its derivative by the log-probability of each response, [K]."""
    errors_K = _errors(group, kl_weight, baseline)
    return -2 * kl_weight * errors_K / len(errors_K)


def _errors(group: Group, kl_weight: float, baseline: Baseline) -> Tensor:
    advantage_K = group.reward_K - BASELINES[baseline](group.reward_K, kl_weight)
    return advantage_K - kl_weight * group.log_ratio_K


def kimi_k15_weights(group: Group, kl_weight: float, baseline: Baseline = "mean") -> Tensor:
    """Minus the gradient's factor of each grad log p, [K]: to be descended, as a loss is."""
    advantage_K = group.reward_K - BASELINES[baseline](group.reward_K, kl_weight)
    return -(advantage_K - kl_weight * group.log_ratio_K) / len(advantage_K)


def log_probability(logits_BTW: Tensor, targets_BT: Tensor) -> Tensor:
    """Of each row's targets together, in nats, [B], float64; targets of -100 count nothing."""
    nll_BT = _nll(logits_BTW, targets_BT)
    return -nll_BT.double().sum(1)


def token_weights(slope_K: Tensor, targets_BT: Tensor, rows: Sequence[int]) -> Tensor:
    """The weight of each target, [B, T]: minus the slope of the response that it belongs to.
    `rows` names the response of each row; targets of -100 weigh nothing."""
    weight_B = -slope_K[torch.tensor(rows, dtype=torch.long)]
    return torch.where(targets_BT == IGNORED, 0.0, weight_B[:, None])


def _nll(logits_BTW: Tensor, targets_BT: Tensor) -> Tensor:
    wide = logits_BTW if logits_BTW.dtype == torch.float64 else logits_BTW.float()
    found = functional.cross_entropy(
        wide.flatten(0, 1), targets_BT.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return found.view_as(targets_BT)
