"""What the reward of a response is compared with. Legend: K responses of a group.

The optimum of reward less `kl_weight` times the divergence from the old policy has, for each
response, r - kl_weight log Z = kl_weight log(p / p_old), with Z = E[exp(r / kl_weight)] over the
old policy (K1.5, arXiv:2501.12599, equation 2). `log_z` estimates that from the group; the `mean`
of the rewards, which K2 uses (report, section 3.2.3), is its limit for a large `kl_weight`, and has
another optimum (arXiv:2602.05933: a mixture of KL and chi-squared).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log
from typing import Final, Literal

from torch import Tensor

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
