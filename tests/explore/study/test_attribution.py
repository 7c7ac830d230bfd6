"""Attribution: the difference of two steps split over what changed, whatever the order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.scenarios import moe
from twin.answers.nearest import StepAnswers
from twin.engine import lower, plan, simulate
from twin.explore.study.attribution import (
    MOST_CAUSES,
    TOGETHER,
    Attribution,
    attribution,
    rounded,
)
from twin.reports.breakdown import mean
from twin.scenario import Scenario

SHAPE = (1, 2, 2, 2)
"""Nodes, stages, chunks per stage and expert ranks."""


def small(*more: str) -> Scenario:
    return moe(*SHAPE, *more)


def events(scenario: Scenario) -> Mapping[str, int]:
    return mean(simulate(lower(plan(scenario))).breakdown_ns)


def split(base: Scenario, other: Scenario) -> Attribution:
    return attribution(base, other, played=(events(base), events(other)))


@cache
def of_changes(*changes: str) -> Attribution:
    """The difference that some edits of the small scenario make."""
    return split(small(), small(*changes))


def worth(found: Attribution) -> dict[str, int]:
    return {cause.name: cause.ns for cause in found.causes}


FASTER = ("calibration.gemm=0.9", "cluster.node.nic.bandwidth=800Gbps", "memory.recompute=[]")
MORE = (
    "calibration.grouped_gemm=0.6",
    "parallel.zero=0",
    "cluster.node.nvlink.efficiency=0.7",
    "train.optimizer=adamw",
)


@pytest.mark.parametrize("changes", [FASTER, FASTER + MORE], ids=["exact", "sampled"])
def test_causes_sum_to_what_the_event_engine_says(changes: tuple[str, ...]) -> None:
    base, other = small(), small(*changes)
    found = of_changes(*changes)
    assert found.delta_ns == sum(events(other).values()) - sum(events(base).values())
    assert sum(cause.ns for cause in found.causes) == found.delta_ns
    for category, ns in found.breakdown_ns.items():
        assert sum(cause.breakdown_ns[category] for cause in found.causes) == ns
    for cause in found.causes:
        assert sum(cause.breakdown_ns.values()) == cause.ns


@pytest.mark.parametrize(
    "changes",
    [FASTER, pytest.param(FASTER + MORE, marks=pytest.mark.slow)],
    ids=["exact", "sampled"],
)
def test_exchanging_the_two_changes_every_sign(changes: tuple[str, ...]) -> None:
    there, back = worth(of_changes(*changes)), worth(split(small(*changes), small()))
    assert there == {name: -ns for name, ns in back.items()}


def test_inputs_that_no_step_depends_on_are_worth_nothing() -> None:
    other = small("cost.gpu_hour=9USD", "train.tokens=1T", "cluster.node.host.sockets=4", *FASTER)
    found = worth(split(small(), other))
    assert found["cost.gpu_hour"] == found["train.tokens"] == 0
    assert found["cluster.node.host.sockets"] == 0
    assert found["calibration.gemm"] < 0


def test_inputs_that_do_the_same_are_worth_the_same() -> None:
    """The NIC's rate is its line rate times both efficiencies, which are 0.95 each."""
    other = small("cluster.node.nic.efficiency=0.9", "cluster.fabric.efficiency=0.9", FASTER[0])
    found = worth(split(small(), other))
    both = found["cluster.node.nic.efficiency"], found["cluster.fabric.efficiency"]
    assert abs(both[0] - both[1]) <= 1


def test_a_single_change_is_worth_the_whole_difference() -> None:
    base, other = small(), small(FASTER[0])
    found = split(base, other)
    answers = StepAnswers("events")
    assert worth(found)["calibration.gemm"] == answers.of(other).step_ns - answers.of(base).step_ns
    assert set(worth(found)) == {"calibration.gemm"}


def test_two_changes_are_worth_the_mean_of_both_orders() -> None:
    base, one, two = small(), small(FASTER[0]), small(FASTER[2])
    both, answers = small(FASTER[0], FASTER[2]), StepAnswers("events")
    steps = [answers.of(scenario).step_ns for scenario in (base, one, two, both)]
    expected = ((steps[1] - steps[0]) + (steps[3] - steps[2])) / 2
    found = worth(split(base, both))
    # Each of the categories is rounded by itself.
    assert abs(found["calibration.gemm"] - expected) <= 6


def test_fields_that_only_work_together_are_one_cause() -> None:
    other = small("parallel.schedule=1f1b", "parallel.virtual=1", FASTER[0])
    found = {cause.name: cause for cause in split(small(), other).causes}
    cause = found["parallel.schedule + parallel.virtual"]
    assert cause.note == TOGETHER
    assert (cause.base, cause.other) == ("interleaved_1f1b, 2", "1f1b, 1")
    assert "calibration.gemm" in found


def test_another_part_of_the_catalog_is_one_cause() -> None:
    other = small("cluster.fabric=rail-fat-tree-200g", "calibration=a100-megatron")
    found = {cause.name: cause for cause in split(small(), other).causes}
    assert set(found) == {"cluster.fabric", "calibration"}
    assert found["cluster.fabric"].other == "rail-fat-tree-200g"


def test_many_changes_are_taken_together_by_section() -> None:
    other = small(*FASTER, *MORE, "calibration.launch=9us", "cluster.node.nic.latency=9us")
    found = split(small(), other)
    assert len(found.causes) <= MOST_CAUSES
    sections = {path.partition(".")[0] for cause in found.causes for path in cause.fields}
    assert sections == {"calibration", "cluster", "memory", "parallel", "train"}
    assert sum(cause.ns for cause in found.causes) == found.delta_ns


def test_equal_scenarios_have_no_causes() -> None:
    found = split(small(), small())
    assert found.causes == ()
    assert found.delta_ns == 0


def test_the_document_is_plain_data_and_says_how_orders_were_averaged() -> None:
    found = of_changes(*FASTER).to_json()
    assert json.loads(json.dumps(found)) == found
    assert found["method"] == "exact: the mean over all 6 orders of 3 causes"
    assert sum(cause["ns"] for cause in found["causes"]) == found["delta_ns"]
    sampled = of_changes(*FASTER, *MORE).method
    assert sampled.startswith("sampled: the mean over 12 of the 5040 orders of 7 causes")


@given(st.lists(st.fractions(-1000, 1000, max_denominator=120), min_size=1, max_size=8))
def test_rounding_keeps_a_whole_sum_and_turns_with_the_sign(shares: list[Fraction]) -> None:
    shares[-1] += -sum(shares) % 1
    whole = rounded(shares)
    assert sum(whole) == sum(shares)
    assert all(abs(number - share) <= 1 for number, share in zip(whole, shares, strict=True))
    assert rounded([-share for share in shares]) == [-number for number in whole]
