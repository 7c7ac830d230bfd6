"""Under other software: each row is what `--set software=NAME` gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL
from twin.answers.nearest import StepAnswers
from twin.explore.study.software import (
    BARE,
    StackAnswer,
    sentence,
    software_table,
    under_other_software,
)
from twin.loading import load, stacks_of
from twin.reports.kpi_intervals import step_interval
from twin.scenario import Scenario

K2 = "kimi-k2-2048xh800"
FOUR = ("model.layers=8", "parallel.pipeline=4", "parallel.layers=null", "cluster.nodes=32")
NINE = (
    "model.layers=9",
    "cluster.nodes=16",
    "parallel.pipeline=4",
    "parallel.virtual=2",
    "train.global_batch=256seq",
)


def under(name: str, *sets: str) -> tuple[StackAnswer, ...]:
    def loader(more: Sequence[str]) -> Scenario:
        return load(name, [*sets, *more])

    return under_other_software(loader)


@pytest.fixture(scope="module")
def found() -> tuple[StackAnswer, ...]:
    return under(K2, *NINE)


def test_every_stack_with_a_calibration_of_the_gpu_has_a_row(
    found: tuple[StackAnswer, ...],
) -> None:
    first, *others = found
    assert (first.label, first.change_seconds) == ("in-house (as written)", 0.0)
    assert {one.stack for one in others} == {BARE, *stacks_of("H800")}
    assert "xla" not in stacks_of("H800")
    assert not any(one.as_written or one.problem for one in others)
    seconds = [one.step_seconds or 0.0 for one in others]
    assert seconds == sorted(seconds)


def test_a_row_is_the_scenario_with_that_software(found: tuple[StackAnswer, ...]) -> None:
    (row,) = (one for one in found if one.stack == "megatron-core")
    scenario = load(K2, [*NINE, "software=megatron-core"])
    answer = StepAnswers().of(scenario)
    assert row.step_seconds == answer.step_ns / 1e9
    assert row.host_seconds == answer.breakdown_ns["host"] / 1e9
    assert row.calibration == scenario.calibration.name == "h800-megatron"
    assert row.step_seconds is not None
    assert row.change_seconds == pytest.approx(row.step_seconds - (found[0].step_seconds or 0))
    assert row.relative_change == pytest.approx(
        row.step_seconds / (found[0].step_seconds or 1.0) - 1.0
    )


def test_a_row_says_its_interval_and_what_changes_the_step_most(
    found: tuple[StackAnswer, ...],
) -> None:
    first, *others = found
    before = StepAnswers().of(load(K2, NINE))
    assert first.cause == ""
    assert next(one.change_seconds for one in others if one.stack == BARE) == 0.0
    for one in others:
        if one.stack == BARE:  # an in-house host is never late, either
            continue
        answer = StepAnswers().of(load(K2, [*NINE, f"software={one.stack}"]))
        changes = {
            cause: ns - before.breakdown_ns.get(cause, 0)
            for cause, ns in answer.breakdown_ns.items()
        }
        assert changes[one.cause] == max(changes.values())
        assert one.cause_seconds == changes[one.cause] / 1e9
        assert one.interval == step_interval(answer.plan, answer.breakdown_ns)
        assert one.interval is not None
        assert one.interval[0] < one.interval[1]


def test_the_stack_of_the_scenario_comes_first_and_unset_is_a_row() -> None:
    first, *others = under(K2, *NINE, "software=megatron-core")
    assert (first.stack, first.as_written) == ("megatron-core", True)
    assert BARE in {one.stack for one in others}
    assert "megatron-core" not in {one.stack for one in others}


def test_a_stack_that_nobody_wrote_is_called_assumed(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL.replace("software: null\n", ""))
    first, *others = under(str(file))
    assert first.label == "megatron-core (assumed)"
    assert not any(one.assumed for one in others)


def test_a_calibration_that_the_scenario_writes_stays() -> None:
    assert {one.calibration for one in under("deepseek-v3-2048xh800", *FOUR)} == {
        "h800-deepseek-2025"
    }


def test_words_and_table_hold_every_row(found: tuple[StackAnswer, ...]) -> None:
    impossible = StackAnswer("odd", as_written=False, problem="no such layout")
    table = software_table((*found, impossible))
    rows = [list(row.values()) for row in table.records()]
    assert [row[0].partition(" (")[0] for row in rows] == [*(one.stack for one in found), "odd"]
    assert rows[-1][1] == "impossible"
    assert "no such layout" in rows[-1]
    assert sentence(found).startswith("Under in-house (as written) a step takes ")
    assert sentence(found[:1]).endswith("there is no other stack.")
