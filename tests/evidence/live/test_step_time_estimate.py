"""Medians with their intervals, and what is left: by hand, and by how often they hold."""

from __future__ import annotations

import numpy as np
import pytest

from tests.evidence.live.made import noise
from twin.evidence.live.step_time_estimate import FEWEST, remaining, step_time, student


def test_a_median_and_its_ranks_by_hand() -> None:
    """Of 25 the reach is 1.2816 x 5 / 2 = 3.2 ranks: from floor(9.3) to ceil(15.7) + 1. Their order
    alternates, so that neighbours are not alike."""
    high_low = [float(n) for pair in zip(range(13, 25), range(1, 13), strict=True) for n in pair]
    found = step_time([*high_low, 25.0])
    assert found is not None
    assert found.seconds == 13
    assert found.interval == (9, 17)


def test_few_steps_have_no_interval() -> None:
    found = step_time([1.0] * (FEWEST - 1))
    assert found is not None
    assert found.interval is None
    left = remaining([1.0] * (FEWEST - 1), 10)
    assert left is not None
    assert (left.seconds, left.interval) == (10.0, None)
    assert step_time([]) is None
    assert remaining([], 5) is None


def test_what_is_left_by_hand() -> None:
    """Blocks of means 1 and 3 in turn, four of them: variance 4/3, s^2 = 20/3; 30 steps left after
    20: s^2 x 30 x (1 + 1.5) = 500; t(0.9, 3) = 1.638: 60 +- 36.6."""
    found = remaining(([1.0] * 5 + [3.0] * 5) * 2, 30)
    assert found is not None
    assert found.seconds == 60
    assert found.interval == pytest.approx((60 - 36.6, 60 + 36.6), abs=0.4)


def test_steps_of_another_size_count_as_their_work() -> None:
    found = remaining([1.0] * 40, 10, work=25.0)
    assert found is not None
    assert (found.steps, found.seconds) == (10, 25.0)


@pytest.mark.parametrize(
    ("freedom", "exact"), [(3, 1.638), (5, 1.476), (10, 1.372), (30, 1.310), (1000, 1.282)]
)
def test_quantiles_of_students_t_are_those_of_the_table(freedom: int, exact: float) -> None:
    assert student(0.9, freedom) == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("kind", [{"sigma": 0.05}, {"sigma": 0.2}, {"sigma": 0.1, "phi": 0.5}])
@pytest.mark.parametrize("left", [20, 400])
def test_eight_of_ten_runs_end_within_their_interval(kind: dict[str, float], left: int) -> None:
    """Of 400 runs; 0.80 +- 0.08, four standard errors."""
    held = 0
    for seed in range(400):
        seconds = noise(200 + left, seed=seed, **kind)
        found = remaining(seconds[:200].tolist(), left)
        assert found is not None
        assert found.interval is not None
        held += found.interval[0] <= seconds[200:].sum() <= found.interval[1]
    assert held / 400 == pytest.approx(0.8, abs=0.08)


@pytest.mark.parametrize("kind", [{"sigma": 0.1}, {"sigma": 0.1, "phi": 0.5}])
def test_eight_of_ten_medians_lie_within_their_interval(kind: dict[str, float]) -> None:
    held = 0
    for seed in range(400):
        found = step_time(noise(100, seed=seed, **kind).tolist())
        assert found is not None
        assert found.interval is not None
        held += found.interval[0] <= 1.0 <= found.interval[1]
    assert 0.74 <= held / 400 <= 0.92  # ranks are whole numbers, so a little more than 80 %


def test_a_slow_stretch_is_in_the_mean_but_not_in_the_median() -> None:
    seconds = [1.0] * 90 + [11.0] * 10
    middle, left = step_time(seconds), remaining(seconds, 10)
    assert middle is not None
    assert left is not None
    assert middle.seconds == 1.0
    assert left.seconds == pytest.approx(10 * float(np.mean(seconds)))
