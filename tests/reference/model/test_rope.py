"""Rotary positions and YaRN, against hand-made numbers."""

from __future__ import annotations

from math import cos, log, sin

import pytest
import torch

from reference.model.rope import Positions, frequencies, logit_factor, rotate, rotate_halves
from twin.loading import load_part
from twin.spec.model import Rope, Yarn

K2 = load_part("models", "kimi-k2").spec


def _yarn(**settings: float) -> Yarn:
    return Yarn.model_validate({"original_context": "4096tok", **settings})


def test_a_pair_turns_by_its_position_times_its_frequency() -> None:
    x = torch.zeros(1, 3, 1, 4)
    x[..., 0] = 1.0  # the first plane turns one radian per position
    turned = rotate(x, Positions(Rope(), 4).turns(3, x))
    for position in range(3):
        torch.testing.assert_close(
            turned[0, position, 0], torch.tensor([cos(position), sin(position), 0.0, 0.0])
        )


@pytest.mark.parametrize("turn", [rotate, rotate_halves])
def test_logits_depend_on_the_distance_of_positions_alone(turn) -> None:
    table = Positions(Rope(theta=100.0), 8)
    random = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64, generator=random)
    # Angles are fp32, so an error is a share of the vectors' lengths, however small their logit.
    size = (q.norm() * k.norm()).item()

    def logit(first: int, second: int) -> float:
        turned = (turn(x, table.turns(at + 1, x)[at:]) for x, at in ((q, first), (k, second)))
        one, other = turned
        return (one * other).sum().item()

    assert logit(7, 3) == pytest.approx(logit(104, 100), abs=1e-5 * size)
    assert logit(7, 3) != pytest.approx(logit(7, 4), abs=1e-3 * size)


def test_both_pairings_are_one_rotation_in_another_order() -> None:
    x = torch.randn(1, 5, 2, 6)
    turns = Positions(Rope(), 6).turns(5, x)
    order = torch.tensor([0, 2, 4, 1, 3, 5])  # halves: (0, 3), (1, 4), (2, 5)
    torch.testing.assert_close(rotate(x, turns)[..., order], rotate_halves(x[..., order], turns))


def test_kimi_k2_keeps_frequencies_0_to_19_and_slows_the_other_twelve_32_times() -> None:
    rope = K2.rope
    ratio = frequencies(Rope(theta=rope.theta), 64) / frequencies(rope, 64)
    torch.testing.assert_close(ratio, torch.tensor([1.0] * 20 + [32.0] * 12))


def test_kimi_k2_s_logits_are_1_8133_times_larger_with_yarn() -> None:
    assert logit_factor(K2.rope) == pytest.approx(1.8133, abs=5e-5)
    assert logit_factor(Rope()) == 1.0


def test_unequal_mscales_scale_the_rotations_themselves() -> None:
    yarn = _yarn(factor=40.0, mscale_all_dim=0.0)
    like = torch.zeros(1)
    turns = Positions(Rope(yarn=yarn), 8).turns(1, like)
    torch.testing.assert_close(turns.abs(), torch.full((1, 4), 0.1 * log(40) + 1))


def test_a_ramp_lies_between_the_betas() -> None:
    yarn = _yarn(factor=8.0)
    ratio = frequencies(Rope(), 64) / frequencies(Rope(yarn=yarn), 64)
    assert ratio[0] == 1
    assert ratio[-1] == pytest.approx(8)
    assert (ratio.diff() >= -1e-6).all()
    assert 3 < ((ratio > 1.01) & (ratio < 7.9)).sum() < 20
