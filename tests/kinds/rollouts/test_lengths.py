"""Distributions of lengths: their means, and how many turns are played."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from twin.errors import TwinError
from twin.kinds.rollouts.plan import numbers
from twin.loading import load
from twin.spec.rollout import Lengths

LENGTHS: TypeAdapter[Any] = TypeAdapter(Lengths)


@pytest.mark.parametrize(
    "told",
    [
        {"kind": "constant", "each": 300.0},
        {"kind": "log_normal", "mean": 3000.0, "sigma": 0.5},
        {"kind": "pareto", "least": 100.0, "shape": 1.0, "longest": 5000.0},
        {"kind": "pareto", "least": 100.0, "shape": 0.5, "longest": 5000.0},
        {"kind": "pareto", "least": 100.0, "shape": 3.0},
        {"kind": "histogram", "edges": [100.0, 200.0, 1000.0], "counts": [3, 1]},
    ],
    ids=str,
)
def test_the_mean_is_that_of_many(told: dict[str, Any]) -> None:
    lengths = LENGTHS.validate_python(told)
    drawn = numbers(lengths, 200_000, np.random.default_rng(1))
    assert lengths.average == pytest.approx(drawn.mean(), rel=0.02)


def test_what_is_cut_has_no_longer_mean() -> None:
    cut = {"kind": "log_normal", "mean": 3000.0, "sigma": 2.0, "longest": 2000.0}
    assert LENGTHS.validate_python(cut).average == 2000.0
    short = {"kind": "pareto", "least": 100.0, "shape": 2.0, "longest": 50.0}
    assert LENGTHS.validate_python(short).average == 50.0


@pytest.mark.parametrize(
    ("sets", "fix"),
    [
        ("turns={kind: constant, each: 39000}", "write fewer requests, or fewer turns of each"),
        ("iterations=1000", "write at most 156"),
    ],
)
def test_more_turns_than_are_played_are_refused(sets: str, fix: str) -> None:
    """6,400 requests of one turn."""
    with pytest.raises(TwinError, match="TW184") as caught:
        load("kimi-k2-rollout-256xh800", [f"rl.rollout.{sets}"])
    assert fix in str(caught.value)
