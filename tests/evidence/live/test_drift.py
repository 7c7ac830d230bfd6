"""The test for drift: how rarely it calls by mistake, how soon it calls a change, and what it says
of it. Seeds are fixed."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest

from tests.evidence.live.made import noise, steps
from twin.evidence.live.drift import BLOCK, WARM_UP, H, K, _normal, blocks, changes, leaves

LENGTH, RUNS = 5000, 20
"""100,000 steps: one false call is expected."""


def calls(**kind: float) -> int:
    """Changes called in runs that have none."""
    return sum(
        len(changes(blocks(steps(noise(LENGTH, seed=seed, **kind))))) for seed in range(RUNS)
    )


def siegmund(k: float, h: float) -> float:
    """Mean blocks to a false call in one direction (Siegmund 1985, section 10.2)."""
    b = h + 1.166
    return (exp(2 * k * b) - 2 * k * b - 1) / (2 * k * k)


def test_the_threshold_is_the_one_that_the_formula_gives() -> None:
    assert siegmund(K, H) == pytest.approx(40_000, rel=0.01)
    # The formula itself, beside the exact value for k = 0.5, h = 5 (Montgomery, table 9.3: 465 for
    # both directions).
    assert siegmund(0.5, 5.0) / 2 == pytest.approx(465, rel=0.02)


@pytest.mark.parametrize(
    "kind",
    [
        {"sigma": 0.02},
        {"sigma": 0.1},
        {"sigma": 0.05, "phi": 0.6},
        {"sigma": 0.1, "phi": 0.9},
    ],
    ids=["quiet", "noisy", "correlated", "very correlated"],
)
def test_at_most_a_few_false_calls_in_100_000_steps(kind: dict[str, float]) -> None:
    """Poisson with mean 1: five or more have a chance of 0.4 %."""
    assert calls(**kind) <= 4


def test_spikes_are_no_drift() -> None:
    """Three steps of a hundred last up to several times as long."""
    found = 0
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        spikes = np.exp((rng.random(LENGTH) < 0.03) * rng.exponential(1.0, LENGTH))
        found += len(changes(blocks(steps(noise(LENGTH, sigma=0.03, seed=seed) * spikes))))
    assert found <= 4


@pytest.mark.parametrize(
    ("sigma", "shift", "within"), [(0.02, 0.05, 25), (0.02, 0.2, 25), (0.1, 0.2, 60)]
)
def test_a_change_is_called_soon(sigma: float, shift: float, within: int) -> None:
    delays: list[int] = []
    for seed in range(RUNS):
        seconds = noise(400, sigma=sigma, seed=seed)
        seconds[200:] *= 1 + shift
        (first, *_) = changes(blocks(steps(seconds)))
        delays.append(first.called - 200)
        assert first.ratio == pytest.approx(1 + shift, abs=2 * sigma)
        assert abs(first.step - 201) <= 3 * BLOCK + (200 * sigma)
    assert 0 < float(np.median(delays)) <= within


def test_a_return_to_normal_is_a_change_too() -> None:
    seconds = noise(900, sigma=0.02)
    seconds[300:600] *= 1.3
    up, down = changes(blocks(steps(seconds)))
    assert up.ratio == pytest.approx(1.3, rel=0.03)
    assert down.ratio == pytest.approx(1 / 1.3, rel=0.03)
    assert up.after == down.before


def test_a_change_below_one_percent_is_nobodys_concern() -> None:
    seconds = noise(2000, sigma=0.0005)
    seconds[1000:] *= 1.003
    assert changes(blocks(steps(seconds))) == ()


def test_a_bound_is_left_only_by_what_lies_beyond_it() -> None:
    seconds = noise(600, sigma=0.03)
    assert leaves(blocks(steps(seconds)), 0.9, 1.1) is None
    called = leaves(blocks(steps(1.2 * seconds)), 0.9, 1.1)
    assert called is not None
    assert called[0] <= WARM_UP + 12 * BLOCK
    assert called[1]
    below = leaves(blocks(steps(0.8 * seconds)), 0.9, 1.1)
    assert below is not None
    assert not below[1]


def test_a_run_on_its_bound_is_rarely_called_away() -> None:
    """The worst case of what is inside: 20 runs of 1,000 steps, 200 blocks of 40,000 each."""
    found = [
        leaves(blocks(steps(noise(1000, sigma=0.05, seed=seed))), 0.5, 1.0) for seed in range(20)
    ]
    assert sum(one is not None for one in found) <= 2


def test_warm_ups_belong_to_no_block() -> None:
    seconds = [9.0] * WARM_UP + [1.0] * BLOCK
    (only,) = blocks(steps(seconds))
    assert (only.first, only.last, only.value) == (WARM_UP + 1, WARM_UP + BLOCK, 0.0)


def test_nothing_is_called_of_nothing() -> None:
    assert changes(blocks([])) == ()
    assert leaves([], 1.0, 2.0) is None


@pytest.mark.parametrize(("freedom", "t"), [(7, 1.415), (7, 2.998), (20, 2.528), (60, 1.296)])
def test_the_deviate_of_students_t_is_the_exact_one(freedom: int, t: float) -> None:
    """Quantiles 0.9 and 0.99 of t from a table, beside those of the normal."""
    exact = {1.415: 1.2816, 2.998: 2.3263, 2.528: 2.3263, 1.296: 1.2816}[t]
    assert _normal(t, freedom) == pytest.approx(exact, abs=0.02)
    assert _normal(-t, freedom) == -_normal(t, freedom)
