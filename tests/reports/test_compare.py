"""A comparison says what differs, which way is good, and where the seconds went."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reports import made
from twin.reports import Report, compare, difference, report
from twin.reports.breakdown import CAUSES

SLOWER = (
    {"compute": 1_200_000_000, "exposed_expert": 900_000_000, "bubble": 400_000_000},
    {"compute": 1_200_000_000, "exposed_expert": 700_000_000, "bubble": 600_000_000},
)


def pair() -> tuple[Report, Report]:
    """The run on paper, and one with micro-batches of two that waits longer for its experts."""
    changed = made.plan(parallel={"micro_batch": 2}, name="slower")
    return report(made.plan(), made.trace()), report(changed, made.trace(SLOWER))


def test_the_breakdowns_differ_by_the_difference_of_the_steps() -> None:
    delta = compare(pair()).deltas[0]
    assert delta.step_delta_ns == 500_000_000
    assert sum(delta.breakdown_ns.values()) == 500_000_000
    assert delta.breakdown_ns["exposed_expert"] == pytest.approx(650_000_000, abs=1)


@given(st.lists(st.lists(st.integers(0, 10**10), min_size=13, max_size=13), min_size=2, max_size=2))
def test_breakdowns_differ_exactly_for_any_two_breakdowns(values: list[list[int]]) -> None:
    rows: list[dict[str, int]] = [
        dict(zip(CAUSES, [1 + row[0], *row[1:]], strict=True)) for row in values
    ]
    comparison = compare([report(made.plan(), made.trace((row,))) for row in rows])
    delta = comparison.deltas[0]
    assert sum(delta.breakdown_ns.values()) == delta.step_delta_ns
    assert delta.step_delta_ns == sum(rows[1].values()) - sum(rows[0].values())


def test_a_key_figure_is_judged_by_its_good_direction() -> None:
    kpis = compare(pair()).deltas[0].kpis
    assert kpis["step_seconds"].verdict == "worse"
    assert kpis["step_seconds"].delta == pytest.approx(0.5)
    assert kpis["step_seconds"].relative == pytest.approx(0.25)
    assert kpis["tokens_per_second"].verdict == "worse"
    assert kpis["bubble_fraction"].verdict == "better"
    assert kpis["peak_device_bytes"].verdict == "same"
    assert kpis["peak_host_bytes_per_node"].relative is None


def test_an_unknown_cost_is_not_judged() -> None:
    free = report(made.plan(cost=None), made.trace())
    cost = compare([free, pair()[1]]).deltas[0].kpis["cost_usd"]
    assert (cost.delta, cost.verdict) == (None, "unknown")


def test_fields_that_differ_have_dotted_paths_and_both_values() -> None:
    fields = compare(pair()).deltas[0].fields
    assert [(f.path, f.baseline, f.candidate) for f in fields] == [("parallel.micro_batch", 1, 2)]


def test_a_field_that_only_one_scenario_has_is_listed() -> None:
    free = report(made.plan(cost=None), made.trace())
    fields = compare([free, pair()[0]]).deltas[0].fields
    said = [field.path for field in fields if field.candidate is not None]
    assert said == ["cost", "cost.gpu_hour"]


def test_runs_that_do_different_work_are_noted() -> None:
    other = made.plan(train={"global_batch": "256tok", "tokens": "2560tok"}, gib=(96.0, 40.0))
    delta = compare([pair()[0], report(other, made.trace())]).deltas[0]
    assert [n.code for n in delta.notes] == ["different-tokens", "different-batch", "does-not-fit"]
    assert compare(pair()).deltas[0].notes == ()


def test_the_json_has_the_change_of_the_first_candidate_and_of_each() -> None:
    first, second = pair()
    answer = json.loads(json.dumps(compare([first, second, first]).to_json()))
    assert answer["version"] == 2
    assert sum(answer["breakdown_ns"].values()) == answer["step_delta_ns"] == 500_000_000
    assert answer["breakdown"]["exposed_expert"] == pytest.approx(0.65)
    assert [candidate["step_delta_ns"] for candidate in answer["candidates"]] == [500_000_000, 0]
    assert len(answer["reports"]) == 3


def test_the_sentence_names_the_cause_of_most_of_the_change() -> None:
    first, second = pair()
    assert difference(first, compare([first, second]).deltas[0]) == (
        "slower: a step is 500 ms (25.0 %) slower than in paper; "
        "the largest part is waiting for expert all-to-all (+650 ms)."
    )
    assert difference(second, compare([second, first]).deltas[0]).startswith(
        "paper: a step is 500 ms (20.0 %) faster"
    )
    assert (
        difference(first, compare([first, first]).deltas[0])
        == "paper: a step takes as long as in paper."
    )


def test_one_report_is_nothing_to_compare() -> None:
    with pytest.raises(ValueError, match="at least two"):
        compare(pair()[:1])
