"""Influence: each uncertain number at both ends of its range, one at a time."""

from __future__ import annotations

import json
import re

import pytest

from tests.engine.scenarios import moe
from twin.answers.nearest import StepAnswers, document, replaced
from twin.engine import lower, plan, simulate
from twin.errors import UsageError
from twin.explore.study.influence import Influence, influence, read_asked, with_split
from twin.reports.breakdown import mean
from twin.reports.kpis import kpis
from twin.scenario import Scenario


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return moe(1, 2, 2, 2)


@pytest.fixture(scope="module")
def found(scenario: Scenario) -> dict[str, Influence]:
    return {one.path: one for one in influence(scenario)}


def test_every_number_with_a_range_or_without_a_measurement_is_looked_at(
    scenario: Scenario, found: dict[str, Influence]
) -> None:
    uncertain = {
        path
        for path, number in scenario.ledger.items()
        if (number.range or number.kind in ("assumed", "fitted"))
        and not path.startswith("model.")
        and not re.search(r"power", path)
    }
    assert set(found) == uncertain
    assert {"calibration.gemm", "cluster.fabric.efficiency"} < uncertain


def test_ends_are_those_of_the_source(found: dict[str, Influence]) -> None:
    one = found["calibration.gemm"]
    assert (one.value, one.low, one.high) == ("0.79", "0.72", "0.83")
    assert one.range_from == "source"
    assert one.kind == "fitted"
    assert one.source is not None


def test_changes_are_those_of_a_run_with_the_other_number(
    scenario: Scenario, found: dict[str, Influence]
) -> None:
    split = [sum(x.kind in ("dense", "moe") for x in c.layers) for c in plan(scenario).chunks]
    fixed = f"parallel.layers={split}"
    slow, usual = (moe(1, 2, 2, 2, fixed, *more) for more in (["calibration.gemm=0.72"], []))
    steps = [simulate(lower(plan(one))) for one in (slow, usual)]
    change = (steps[0].step_ns - steps[1].step_ns) / 1e9
    one = found["calibration.gemm"]
    assert one.step_seconds[0] == pytest.approx(change)
    assert one.step_seconds[0] > 0 > one.step_seconds[1]
    days = [
        kpis(plan(scenario), trace.step_ns, mean(trace.breakdown_ns))["days"] for trace in steps
    ]
    assert one.days[0] == pytest.approx((days[0] or 0) - (days[1] or 0))


def test_the_most_influential_come_first(found: dict[str, Influence]) -> None:
    spans = [one.span for one in found.values()]
    assert spans == sorted(spans, reverse=True)
    assert spans[0] > 0


def test_memory_reserves_move_what_is_left_and_no_time(found: dict[str, Influence]) -> None:
    one = found["cluster.node.gpu.reserve.1.bytes"]
    assert one.step_seconds == (0.0, 0.0)
    assert one.headroom_bytes == pytest.approx(((2 - 0.7) * 2**30, (2 - 6) * 2**30))


def test_without_a_range_ten_percent_to_either_side(found: dict[str, Influence]) -> None:
    one = found["cluster.fabric.spines"]
    assert (one.low, one.value, one.high) == ("29", "32", "35")
    assert one.range_from == "default"
    rate = found["cluster.node.host.memory_bandwidth_per_socket"]
    assert (rate.low, rate.high) == ("276.48GB/s", "337.92GB/s")


def test_shares_and_ratios_stop_at_one() -> None:
    """What a planner writes over a part is assumed, and has no range."""
    override = ["cluster.node.nic.efficiency=0.95", "cluster.fabric.oversubscription=1.0"]
    found = {one.path: one for one in influence(moe(1, 1, 1, 2, "model.layers=2", *override))}
    share, ratio = (found[o.partition("=")[0]] for o in override)
    assert (share.low, share.high) == ("0.855", "1.0")
    assert (ratio.low, ratio.high) == ("1.0", "1.1")


def test_the_split_of_layers_stays() -> None:
    """A planner's split does not change because a number turns out to be another."""
    slow, fast = (moe(1, 2, 2, 2, f"calibration.attention_forward={one}") for one in (0.01, 0.9))
    splits = [[len(chunk.layers) for chunk in plan(one).chunks] for one in (slow, fast)]
    assert splits[0] != splits[1], "the balance depends on the number, so the test can fail"
    fixed = with_split(document(fast), plan(fast))
    variant = replaced(fixed, {"calibration.attention_forward": 0.01})
    assert [len(chunk.layers) for chunk in plan(variant).chunks] == splits[1]


def test_numbers_are_plain_data(found: dict[str, Influence]) -> None:
    document = found["calibration.gemm"].to_json()
    assert json.loads(json.dumps(document))["span_seconds"] == found["calibration.gemm"].span


def test_a_field_that_is_asked_about_is_tried_at_both_ends_alone() -> None:
    """Any value that `--set` takes, lists too; the answers are those of the two plans."""
    base = moe(2, 2, 2, 4)
    asked = read_asked(["cluster.node.nic.bandwidth=200Gbps..800Gbps", "parallel.micro_batch=1..2"])
    found = {one.path: one for one in influence(base, asked=asked)}
    assert set(found) == {"cluster.node.nic.bandwidth", "parallel.micro_batch"}
    nic = found["cluster.node.nic.bandwidth"]
    assert nic.range_from == "asked"
    usual = StepAnswers("events").of(base).step_ns
    fixed = with_split(document(base), plan(base))
    for change, end in zip(nic.step_seconds, ("200Gbps", "800Gbps"), strict=True):
        played = StepAnswers("events").of(replaced(fixed, {nic.path: end})).step_ns
        assert change == pytest.approx((played - usual) / 1e9)
    assert nic.step_seconds[0] > 0 > nic.step_seconds[1]


def test_a_split_of_layers_can_be_asked_about() -> None:
    base = moe(2, 2, 2, 4)
    (one,) = influence(base, asked=read_asked(["parallel.layers=[3,2,2,2]..[0,3,3,3]"]))
    assert (one.low, one.high) == ("[3, 2, 2, 2]", "[0, 3, 3, 3]")
    assert one.step_seconds != (0.0, 0.0)


def test_a_field_without_ends_keeps_the_range_of_its_source() -> None:
    base = moe(2, 2, 2, 4)
    (one,) = influence(base, asked=read_asked(["cluster.node.nic.efficiency"]))
    known = base.ledger["cluster.node.nic.efficiency"].range
    assert known is not None
    assert (one.low, one.high) == tuple(map(str, known))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("parallel.pipe=1..2", "TW161"),
        ("parallel.pipeline=2", "TW161"),
        ("parallel.schedule", "TW161"),
        ("parallel.pipeline=3..5", "TW162"),
        ("parallel.layers=[1]..[9]", "TW162"),
        ("cluster.node.nic.efficiency=0.5..fast", "TW162"),
    ],
)
def test_what_cannot_be_asked_says_why(text: str, code: str) -> None:
    with pytest.raises(UsageError, match=code):
        influence(moe(2, 2, 2, 4), asked=read_asked([text]))
