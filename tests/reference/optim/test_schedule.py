"""The learning rate, by Kimi K2's own numbers."""

import pytest

from reference.optim.spec import ScheduleSpec, learning_rate

TOKENS_PER_STEP = 2**26
"""Kimi K2's batch of 67M tokens."""
CONSTANT = round(10e12 / TOKENS_PER_STEP)
DECAY = round(5.5e12 / TOKENS_PER_STEP)
K2 = ScheduleSpec(warmup_steps=500, constant_steps=CONSTANT, decay_steps=DECAY, final_lr=2e-5)


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (0, 2e-4 / 500),
        (249, 1e-4),
        (499, 2e-4),
        (500, 2e-4),
        (500 + CONSTANT, 2e-4),
        (500 + CONSTANT + DECAY // 2, 1.1e-4),
        (500 + CONSTANT + DECAY // 4, 2e-5 + 1.8e-4 * (1 + 0.5**0.5) / 2),
        (500 + CONSTANT + DECAY, 2e-5),
        (10**6, 2e-5),
    ],
)
def test_kimi_k2_warms_up_stays_and_decays(step, rate):
    assert abs(CONSTANT + DECAY - 230_968) <= 1
    assert learning_rate(step, K2, 2e-4) == pytest.approx(rate, rel=1e-4)


def test_a_linear_decay_is_a_straight_line():
    spec = ScheduleSpec(decay_steps=10, decay="linear", final_lr=0.1)
    rates = [learning_rate(step, spec, 1.1) for step in range(12)]
    assert rates == pytest.approx([1.1, 1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1])


def test_without_a_final_rate_the_peak_stays():
    spec = ScheduleSpec(warmup_steps=2, decay_steps=10)
    assert [learning_rate(step, spec, 3.0) for step in (0, 1, 2, 5, 10**6)] == [1.5, 3, 3, 3, 3]
