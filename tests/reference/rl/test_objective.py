"""The objectives against autograd, closed forms and each other."""

from __future__ import annotations

from math import exp, log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from reference.model import Transformer
from reference.model.transformer import initialize
from reference.rl.objective import (
    Baseline,
    RewardGroup,
    baseline_of,
    kimi_k15_weights,
    squared_error,
    squared_error_weights,
)
from reference.rl.objective import token_weights as weighted
from reference.text.loader import IGNORED
from tests.reference.inference.small import LATENT
from twin.spec.model import ModelSpec

NUMBER = st.floats(-4, 4, allow_nan=False)
PAIRS = st.lists(st.tuples(NUMBER, NUMBER), min_size=1, max_size=8)
WEIGHT = st.floats(0.01, 10)


def log_probability(logits_BTW: Tensor, targets_BT: Tensor) -> Tensor:
    """The log-probability of each row's targets together, in nats, [B], float64; targets of -100 do
    not count."""
    wide = logits_BTW if logits_BTW.dtype == torch.float64 else logits_BTW.float()
    nll = functional.cross_entropy(
        wide.flatten(0, 1), targets_BT.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return -nll.view_as(targets_BT).double().sum(1)


BASELINE = st.sampled_from(["log_z", "mean"])


def group_of(pairs: list[tuple[float, float]]) -> RewardGroup:
    rewards, ratios = zip(*pairs, strict=True)
    return RewardGroup(
        torch.tensor(rewards, dtype=torch.float64), torch.tensor(ratios, dtype=torch.float64)
    )


@given(PAIRS, WEIGHT, BASELINE)
def test_slopes_of_the_squared_error_are_its_derivative(pairs, weight: float, kind: Baseline):
    group = group_of(pairs)
    ratios_K = group.log_ratio_K.clone().requires_grad_()
    squared_error(RewardGroup(group.reward_K, ratios_K), weight, kind).backward()
    assert ratios_K.grad is not None
    torch.testing.assert_close(squared_error_weights(group, weight, kind), ratios_K.grad)


@given(PAIRS, WEIGHT, BASELINE)
def test_the_gradient_of_k2_is_that_of_k15_times_minus_two_kl_weights(
    pairs, weight: float, kind: Baseline
):
    """kimi_k15_weights is minus the ascended gradient's factors."""
    group = group_of(pairs)
    ascended_K = -kimi_k15_weights(group, weight, kind)
    torch.testing.assert_close(squared_error_weights(group, weight, kind), -2 * weight * ascended_K)


def test_two_responses_by_hand() -> None:
    """Rewards 1 and 0, log-ratios 0.2 and -0.4, weight 0.5: errors 0.4 and -0.3."""
    group = group_of([(1.0, 0.2), (0.0, -0.4)])
    assert squared_error(group, 0.5).item() == pytest.approx((0.4**2 + 0.3**2) / 2)
    assert squared_error_weights(group, 0.5).tolist() == pytest.approx([-0.2, 0.15])
    assert kimi_k15_weights(group, 0.5).tolist() == pytest.approx([-0.2, 0.15])


@given(st.lists(NUMBER, min_size=1, max_size=8), WEIGHT)
def test_log_z_lies_between_the_mean_and_the_largest_reward(
    rewards: list[float], weight: float
) -> None:
    found = baseline_of(torch.tensor(rewards, dtype=torch.float64), weight, "log_z").item()
    assert sum(rewards) / len(rewards) - 1e-9 <= found <= max(rewards) + 1e-9


def test_log_z_is_its_closed_form_and_tends_to_the_mean() -> None:
    rewards_K = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    assert baseline_of(rewards_K, 0.5, "log_z").item() == pytest.approx(0.5 * log((exp(2) + 3) / 4))
    assert baseline_of(rewards_K, 1e4, "log_z").item() == pytest.approx(0.25, abs=1e-4)


@pytest.mark.parametrize("kind", ["log_z", "mean"])
def test_descent_finds_the_optimum_of_its_baseline(kind: Baseline) -> None:
    """With all responses of a small world in the group, drawn evenly, `log_z` ends at
    p_old exp(r / w) / Z; the mean baseline ends elsewhere."""
    rewards_K = torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64)
    old_K = torch.full((3,), 1 / 3, dtype=torch.float64)
    logits_K = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    for _ in range(4000):
        ratio_K = logits_K.log_softmax(0) - old_K.log()
        found = squared_error(RewardGroup(rewards_K, ratio_K), 0.5, kind)
        (slope_K,) = torch.autograd.grad(found, logits_K)
        with torch.no_grad():
            logits_K -= 2.0 * slope_K
    found_K = logits_K.detach().softmax(0)
    best_K = (rewards_K / 0.5).softmax(0)
    distance = (found_K - best_K).abs().max().item()
    assert distance < 1e-6 if kind == "log_z" else distance > 1e-3


def test_weighted_tokens_give_the_gradient_of_the_objective_through_a_model() -> None:
    """Two responses, one in two rows (cut by a tool's turn), against autograd through the sums."""
    model = Transformer(ModelSpec.model_validate(LATENT), dtype=torch.float64)
    initialize(model, 0)
    tokens_BT = torch.randint(0, 257, (3, 9), generator=torch.Generator().manual_seed(1))
    targets_BT = tokens_BT.roll(-1, 1)
    targets_BT[:, -1] = IGNORED
    targets_BT[0, :4] = targets_BT[2, :2] = IGNORED
    rows = [0, 1, 1]
    rewards_K = torch.tensor([1.0, 0.0], dtype=torch.float64)
    old_K = torch.tensor([-27.0, -80.0], dtype=torch.float64)

    per_row_B = log_probability(model(tokens_BT), targets_BT)
    ratio_K = torch.stack([per_row_B[0], per_row_B[1] + per_row_B[2]]) - old_K
    squared_error(RewardGroup(rewards_K, ratio_K), 0.1).backward()
    wanted = [one.grad.clone() for one in model.parameters() if one.grad is not None]

    model.zero_grad()
    slope_K = squared_error_weights(RewardGroup(rewards_K, ratio_K.detach()), 0.1)
    weights_BT = weighted(slope_K, targets_BT, rows)
    model.loss(tokens_BT, targets_BT, weights_BT).backward()
    found = [one.grad for one in model.parameters() if one.grad is not None]
    assert len(found) == len(wanted) > 20
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_rewards_without_ratios_are_refused() -> None:
    with pytest.raises(ValueError, match="not one each"):
        RewardGroup(torch.zeros(3), torch.zeros(2))
