"""Hidden expert parallelism: every degree that can be, and the largest that stays hidden."""

from __future__ import annotations

import json

import pytest

from tests.engine.scenarios import dense, moe
from twin.engine import lower, plan, simulate
from twin.errors import UsageError
from twin.explore.study.hidden import DEGREES, LIMIT, HiddenExpert, Trial, hidden_expert, sentence
from twin.reports import report

K2 = "{kind: interleaved_1f1b, extra_warmup: 1, overlap_all_to_all: true, defer_weight_grad: true}"


@pytest.fixture(scope="module")
def found() -> HiddenExpert:
    scenario = moe(4, 4, 2, 8, f"parallel.schedule={K2}", "memory.recompute=[]")
    return hidden_expert(scenario, cache=False)


def test_every_degree_is_tried_for_the_plan_s_heads_and_for_twice_as_many(
    found: HiddenExpert,
) -> None:
    assert [(one.heads, one.expert) for one in found.trials] == [
        (heads, degree) for heads in (64, 128) for degree in DEGREES
    ]


def test_a_degree_that_the_layout_does_not_permit_says_why(found: HiddenExpert) -> None:
    """Eight ranks per stage hold at most eight sets of experts."""
    impossible = {one.expert: one.impossible for one in found.of(64) if one.impossible}
    assert set(impossible) == {16, 32, 64, 128}
    assert all(impossible.values())


def test_a_trial_is_the_run_at_that_degree(found: HiddenExpert) -> None:
    scenario = moe(4, 4, 2, 8, f"parallel.schedule={K2}", "memory.recompute=[]")
    planned = plan(scenario)
    answer = report(planned, simulate(lower(planned)))
    trial = found.of(64)[0]
    shown = answer.exposure["exposed_expert"]
    assert trial.step_seconds == answer.step_ns / 1e9
    assert trial.ramp_seconds == shown.ramp_ns / 1e9
    assert trial.steady_seconds == shown.steady_ns / 1e9
    assert trial.fits == answer.fits


def test_more_heads_open_a_wider_window_for_the_same_demand(found: HiddenExpert) -> None:
    few, many = found.of(64)[0], found.of(128)[0]
    assert many.window_seconds > 1.05 * few.window_seconds
    assert many.demand_seconds == few.demand_seconds


def test_progress_goes_from_nothing_to_all() -> None:
    told: list[float] = []
    hidden_expert(moe(4, 4, 1, 8), told.append, cache=False)
    assert told == sorted(told)
    assert told[-1] == 1.0


def trial(expert: int, steady: float, *, heads: int = 64, fits: bool = True) -> Trial:
    return Trial(heads, expert, fits=fits, step_seconds=1.0, steady_seconds=steady)


def test_the_largest_is_the_largest_below_the_limit_whether_it_fits_or_not() -> None:
    made = HiddenExpert((trial(8, 0.001), trial(16, 0.9 * LIMIT, fits=False), trial(32, LIMIT)))
    best = made.largest(64)
    assert best is not None
    assert best.expert == 16
    assert sentence(made).startswith(
        "With 64 heads expert parallelism stays hidden up to 16, though that plan does not fit"
    )


def test_the_ramp_does_not_count() -> None:
    """Nothing could hide it, at any degree."""
    assert Trial(64, 8, step_seconds=1.0, ramp_seconds=0.5, steady_seconds=0.001).hidden


def test_where_none_stays_hidden_the_least_that_shows_is_said() -> None:
    made = HiddenExpert((trial(8, 0.1), trial(16, 0.05)))
    assert made.largest(64) is None
    assert "expert parallelism 16 shows least, 5.0 % of the step" in sentence(made)


def test_the_document_reads_back(found: HiddenExpert) -> None:
    document = json.loads(json.dumps(found.to_json()))
    assert document["limit"] == LIMIT
    assert set(document["largest_hidden"]) == {"64", "128"}
    assert len(document["trials"]) == len(found.trials)


def test_a_model_without_experts_has_nothing_to_hide() -> None:
    with pytest.raises(UsageError, match="TW160"):
        hidden_expert(dense(2, 2, 1, 2))
