"""Kimi K1.5's gradient (arXiv:2501.12599, equation 3). Legend: K responses of a group.

    g = mean_k [ grad log p_k (r_k - mean r) - (kl_weight / 2) grad (log(p / p_old)_k)^2 ]

to be ascended. K2's objective has the gradient -2 kl_weight g: the same direction in which to go,
and a size that vanishes with `kl_weight`. Under Muon and AdamW, whose updates do not depend on the
gradient's size, one step is the same; with clipping, accumulation over prompts of other weights or
an auxiliary loss it is not, which is why both have a name.
"""

from __future__ import annotations

from torch import Tensor

from reference.rl.objective.baselines import BASELINES, Baseline
from reference.rl.objective.group import Group


def slopes(group: Group, kl_weight: float, baseline: Baseline = "mean") -> Tensor:
    """Minus the gradient's factor of each grad log p, [K]: to be descended, as a loss is."""
    advantage_K = group.reward_K - BASELINES[baseline](group.reward_K, kl_weight)
    return -(advantage_K - kl_weight * group.log_ratio_K) / len(advantage_K)
