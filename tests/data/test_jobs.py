"""The requests that jobs take: hand-checked cases, and laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.data.generate import rephrasing_job, trajectories_job
from twin.spec.data import CorpusSpec, RephrasingRecipe, TrajectoriesSpec, TrajectoryRecipe


def words(**over: object) -> RephrasingRecipe:
    plain = {
        "name": "words",
        "excerpt": "1024tok",
        "piece": "256tok",
        "prompt": 100,
        "written": 1.0,
        "check": 10,
        "acceptance": 0.5,
    }
    return RephrasingRecipe.model_validate(plain | over)


def agents(**over: object) -> TrajectoryRecipe:
    plain = {
        "name": "agents",
        "prompt": 1000,
        "turns": 3,
        "written": "100tok",
        "read": 50,
        "simulated": 0,
        "latency": "0s",
        "candidates": 1,
        "check": 0,
        "acceptance": 1.0,
    }
    return TrajectoryRecipe.model_validate(plain | over)


def corpus(rephrasings: int = 1) -> CorpusSpec:
    return CorpusSpec.model_validate({"name": "c", "tokens": "1M", "rephrasings": rephrasings})


def wanted(recipe: TrajectoryRecipe, kept: int = 1000) -> TrajectoriesSpec:
    return TrajectoriesSpec(recipe=recipe, kept=kept)


def test_an_excerpt_of_four_pieces_by_hand() -> None:
    """Instructions 100. New: piece 256 each, and the rewrite before, 256, but for the first: mean
    448. Read in all: 100 + (0 + 256 + 512 + 768) / 4 + 256 = 740."""
    job = rephrasing_job(words(), corpus(), prefix_cache=True)
    pieces, check = job.asked
    assert pieces.count == 4 * check.count == pytest.approx(4 * 2 * 1e6 / 1024)
    assert pieces.request.new == 448
    assert pieces.request.new + pieces.request.cached == 740
    assert pieces.request.longest == 100 + 256 + 4 * 256
    assert (check.request.new, check.request.written) == (2048, 10)
    assert job.kept_tokens == 1e6
    assert job.rejected == pytest.approx(0.5)


def test_without_a_cache_all_is_new() -> None:
    job = rephrasing_job(words(), corpus(), prefix_cache=False)
    assert (job.asked[0].request.new, job.asked[0].request.cached) == (740, 0)


def test_three_turns_by_hand() -> None:
    """Lengths before the turns: 1000, 1150, 1300, of which 0, 1100, 1250 are cached."""
    job = trajectories_job(wanted(agents()), prefix_cache=True)
    (turns,) = job.asked
    assert turns.count == 3000
    assert turns.request.cached == pytest.approx((0 + 1100 + 1250) / 3)
    assert turns.request.new == pytest.approx((1000 + 50 + 50) / 3)
    assert turns.request.longest == 1400 == job.kept_tokens / 1000


def test_of_four_candidates_one_is_kept_of_each_task_that_leaves_one() -> None:
    """With half accepted 15 of 16 tasks leave one."""
    recipe = agents(candidates=4, acceptance=0.5)
    job = trajectories_job(wanted(recipe), prefix_cache=True)
    assert job.attempts == pytest.approx(1000 * 16 / 15 * 4)
    assert job.rejected == pytest.approx(1 - 15 / 64)


@given(st.floats(0.05, 1.0), st.floats(0.05, 1.0), st.integers(1, 16))
def test_what_is_refused_more_often_takes_more(a: float, b: float, candidates: int) -> None:
    low, high = sorted((a, b))

    def taken(acceptance: float) -> list[float]:
        recipe = agents(acceptance=acceptance, candidates=candidates)
        jobs = (
            trajectories_job(wanted(recipe), prefix_cache=True),
            rephrasing_job(words(acceptance=acceptance), corpus(), prefix_cache=True),
        )
        return [one.written_tokens for one in jobs]

    assert all(few >= many * (1 - 1e-12) for few, many in zip(taken(low), taken(high), strict=True))


@given(st.integers(1, 5), st.booleans())
def test_work_grows_with_the_rephrasings(times: int, cached: bool) -> None:
    one, many = (rephrasing_job(words(), corpus(n), prefix_cache=cached) for n in (1, times))
    for key in ("written_tokens", "read_tokens", "kept_tokens", "attempts"):
        assert getattr(many, key) == pytest.approx(times * getattr(one, key))
