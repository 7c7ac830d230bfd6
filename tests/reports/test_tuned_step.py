"""A plan whose software is assumed: its interval holds the tuned stack's step, too."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL
from twin.answers.nearest import StepAnswers
from twin.engine import lower, plan, simulate
from twin.loading import load
from twin.reports import Report, RunInfo, report
from twin.reports.head import UNTIMED
from twin.reports.interval import Reach, circumstances, reach, shipped
from twin.reports.table import duration
from twin.reports.tables import kpi_table


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    text = SMALL.replace("software: null\n", "").replace("sequence: 2048tok", "sequence: 1024tok")
    path.write_text(text)  # the host binds: a tuned stack takes less than half as long
    return path


def answer(file: Path, *sets: str, run: RunInfo = UNTIMED) -> Report:
    planned = plan(load(file, sets))
    return report(planned, simulate(lower(planned)), run)


def test_the_interval_reaches_to_the_expected_step_of_the_tuned_stack(file: Path) -> None:
    """It knows the errors of runs whose software nobody named, and the tuned stack's step."""

    def unnamed(name: str) -> tuple[float, Reach]:
        found = StepAnswers().of(load(file, [f"software={name}"]))
        at = replace(circumstances(found.plan, found.breakdown_ns), assumed=True)
        reached = reach(at, "step_seconds", shipped())
        assert reached is not None
        return found.step_ns / 1e9, reached

    assumed, chosen = answer(file), answer(file, "software=megatron-core")
    assert assumed.step_ns == chosen.step_ns
    (own, usual), (tuned, other) = unnamed("megatron-core"), unnamed("megatron-core-tuned")
    expected = tuned * exp(other.centre)
    wide = assumed.intervals["step_seconds"]
    assert wide is not None
    assert expected < usual.spread(own)[0]
    assert wide == pytest.approx((expected, usual.spread(own)[1]))
    assert wide != chosen.intervals["step_seconds"]
    share = wide[0] / (assumed.step_ns / 1e9)
    days, mfu = assumed.intervals["days"], assumed.intervals["mfu"]
    assert days is not None
    assert mfu is not None
    assert days[0] == pytest.approx(share * (assumed.kpis["days"] or 0.0))
    assert mfu[1] == pytest.approx((assumed.kpis["mfu"] or 0.0) / share)


def test_physics_alone_reaches_to_the_simulated_step(file: Path) -> None:
    tuned = StepAnswers().of(load(file, ["software=megatron-core-tuned"]))
    span = answer(file, run=RunInfo(0.0, None, physics=True)).intervals["step_seconds"]
    assert span is not None
    assert span[0] == pytest.approx(tuned.step_ns / 1e9)


def test_the_warning_and_the_table_say_what_is_assumed(file: Path) -> None:
    found = answer(file)
    tuned = StepAnswers().of(load(file, ["software=megatron-core-tuned"])).step_ns
    moved = f"{duration(tuned / 1e9)} ({100 * (tuned / found.step_ns - 1):+.1f} %)"
    (said,) = (one.message for one in found.warnings if one.code == "software-assumed")
    assert "megatron-core is assumed" in said
    assert f"Under megatron-core-tuned the step takes {moved}" in said
    assert kpi_table(found).caption.split("; ")[1] == "software: megatron-core (assumed)"
    chosen = answer(file, "software=megatron-core")
    assert not any("software" in one.code for one in chosen.warnings)
    assert kpi_table(chosen).caption.split("; ")[1] == "software: megatron-core"
    assert "none, bare kernels" in kpi_table(answer(file, "software=null")).caption


def test_an_interval_that_holds_another_step_keeps_it_in_its_inverse() -> None:
    usual = Reach(0.0, log(2.0), 9, 9, 9)
    wide = Reach(0.0, log(2.0), 9, 9, 9, other=-log(4.0))
    inside = Reach(0.0, log(2.0), 9, 9, 9, other=0.1)
    assert usual.spread(8.0) == inside.spread(8.0) == pytest.approx((4.0, 16.0))
    assert wide.spread(8.0) == pytest.approx((2.0, 16.0))
    assert wide.inverse.spread(8.0) == pytest.approx((4.0, 32.0))
