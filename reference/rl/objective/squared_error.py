"""Kimi K2's objective (report, section 3.2.3), on whole sequences. Legend: K responses.

    L = mean_k (r_k - baseline - kl_weight log(p / p_old)_k)^2

It is minimal where each response's log-ratio is its advantage over `kl_weight`. There is no
importance weight, no clipping, no division by a standard deviation and no value network. OURS, as
the report leaves it open: the size of `kl_weight`, and sums over tokens rather than means.
"""

from __future__ import annotations

from torch import Tensor

from reference.rl.objective.baselines import BASELINES, Baseline
from reference.rl.objective.group import Group


def loss(group: Group, kl_weight: float, baseline: Baseline = "mean") -> Tensor:
    """The objective of a group, to be minimised."""
    return _errors(group, kl_weight, baseline).square().mean()


def slopes(group: Group, kl_weight: float, baseline: Baseline = "mean") -> Tensor:
    """Its derivative by the log-probability of each response, [K]."""
    errors_K = _errors(group, kl_weight, baseline)
    return -2 * kl_weight * errors_K / len(errors_K)


def _errors(group: Group, kl_weight: float, baseline: Baseline) -> Tensor:
    advantage_K = group.reward_K - BASELINES[baseline](group.reward_K, kl_weight)
    return advantage_K - kl_weight * group.log_ratio_K
