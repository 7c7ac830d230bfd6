"""Laws of corrections and intervals, on residuals made by hand and on those that ship."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest

from tests.evidence.validate.made import AT, residual
from twin.engine import plan
from twin.loading import load
from twin.reports import interval
from twin.reports.interval import LIMIT, Known, Reach, circumstances, reach
from twin.reports.kpi_intervals import intervals
from twin.spec.kpis import KPIS

STEP = "step_seconds"


def known(*values: float, families: int = 1, **changes: object) -> Known:
    """One source per value, with so many families that all miss by it."""
    return Known(
        tuple(
            residual(
                f"row {n} {m}", value, family=f"source {n} | model {m} | H100 | bf16", **changes
            )
            for n, value in enumerate(values)
            for m in range(families)
        )
    )


def told(seen: Known, **changes: object) -> Reach:
    found = reach(replace(AT, **changes), STEP, seen)
    assert found is not None
    return found


def test_no_evidence_no_correction() -> None:
    assert reach(AT, STEP, Known()) is None
    assert reach(AT, STEP, known(0.1, 0.1, 0.1, 0.1)) is None  # four families are too few
    assert told(known(*[0.0] * 8)).centre == 0.0


def test_more_sources_come_nearer_to_the_bias() -> None:
    centres = [told(known(*[0.08] * n)).centre for n in (5, 10, 40, 160)]
    assert centres == sorted(centres)
    assert 0.0 < centres[0] < 0.075
    assert centres[-1] == pytest.approx(0.08, abs=0.01)


def test_many_families_of_one_source_count_little_more_than_one() -> None:
    zeros = tuple(
        replace(one, family=f"z{n} | m | g | p")
        for n, one in enumerate(known(*[0.0] * 8).residuals)
    )
    single = told(Known(zeros + known(0.1).residuals)).centre
    many = told(Known(zeros + known(0.1, families=50).residuals)).centre
    assert 0.0 < single < many < 2.0 * single


def test_tables_and_releases_of_a_project_are_one_source() -> None:
    """It is left out as a whole, and its families move a centre as those of one source do."""
    rows = tuple(replace(one, family=f"other {one.family}") for one in known(*[0.1] * 6).residuals)
    apart = Known(rows + known(*[0.0] * 6).residuals)
    for title in ("bench, NeMo 25.09", "bench, Table 2", "bench (2024), Table 1"):
        assert interval.project(title) == "bench"
    titles = [f"bench, release {n} | m | H100 | bf16" for n in range(6)]
    same = Known(
        tuple(replace(one, family=t) for one, t in zip(rows, titles, strict=True))
        + known(*[0.0] * 6).residuals
    )
    assert told(same).centre < told(apart).centre
    assert same.without("bench, release 3") == known(*[0.0] * 6)


def test_intervals_know_residuals_of_fits_that_have_not_seen_the_source() -> None:
    seen = known(*[0.0] * 8)
    left_out = Known(tuple(replace(one, left_out=0.08) for one in seen.residuals))
    assert told(left_out) == told(known(*[0.08] * 8))


def test_a_run_whose_software_nobody_named_has_the_width_of_blind_sources() -> None:
    """Same centre, more spread; a named stack keeps its own, and so does a peak of memory."""
    draw = np.random.default_rng(3).normal(0.0, 1.0, 30)
    near, far = known(*(0.03 * draw)), known(*(0.12 * draw), assumed=True)
    both = Known(near.residuals, far.residuals)
    assert told(both) == told(near)
    assert told(both, assumed=True).size > 2.0 * told(both).size
    assert told(near, assumed=True) == told(near)  # no source was met blind
    unnamed = told(both, assumed=True)
    assert unnamed.blind
    assert told(both, assumed=True, host=0.5, exchange=0.3) == unnamed  # shares tell nothing of it
    assert both.without("source 3").blind == far.without("source 3").residuals
    peaks = known(*(0.03 * draw), metric="peak_device_bytes")
    both = Known(peaks.residuals, far.residuals)
    named, unnamed = (
        reach(replace(AT, assumed=assumed), "peak_device_bytes", both) for assumed in (False, True)
    )
    assert named == unnamed is not None


def test_the_quantile_is_of_one_source_more() -> None:
    """Four of five sizes hold 80 % of them, and five of six of them and the next."""
    sizes = [(float(n), 1.0) for n in range(1, 6)]
    assert interval.quantile(sizes, 0.8) == 4.0
    assert interval.quantile(sizes, 0.8 * (1 + 1 / 5)) == 5.0
    assert interval.quantile([(1.0, 8.0), (9.0, 2.0)], 0.8) == 1.0


def test_no_source_moves_a_step_by_more_than_the_limit() -> None:
    wild, cut = known(*[0.0] * 8, 2.0), known(*[0.0] * 8, LIMIT[STEP])
    assert told(wild).centre == pytest.approx(told(cut).centre)
    assert abs(told(known(*[5.0] * 50)).centre) <= LIMIT[STEP]


def test_circumstances_unlike_all_sources_have_wider_intervals() -> None:
    draw = np.random.default_rng(5)
    seen = known(*draw.normal(0.0, 0.05, 20).tolist())
    near = told(seen).size
    assert told(seen, experts=True).size > near
    assert told(seen, software="unknown").size > near
    assert told(seen, host=0.5).size > told(seen, host=0.2).size > near
    assert reach(replace(AT, gpu="stand-in", peak=1e9), STEP, seen) is None


def test_exchangeable_sources_are_held_four_times_in_five() -> None:
    draw, held = np.random.default_rng(7), 0
    for _ in range(300):
        values = draw.normal(0.0, 0.08, 31).tolist()
        own = told(known(*values[:30]))
        held += abs(values[30] - own.centre) <= own.size
    assert 0.72 <= held / 300 <= 0.88


def test_a_bias_of_a_regime_stays_there() -> None:
    """Steps that wait for the host take longer than simulated; others do not."""
    slow = known(*[0.1] * 20, host=0.4)
    right = tuple(replace(one, family=f"r{one.family}") for one in known(*[0.0] * 20).residuals)
    both = Known(slow.residuals + right)
    assert told(both, host=0.4).centre > 0.06
    assert abs(told(both).centre) < 0.02


def test_the_regime_is_the_largest_loss_or_the_kernels() -> None:
    assert AT.regime == "kernels"
    assert replace(AT, host=0.3).regime == "host"
    assert replace(AT, exchange=0.3).regime == "exchange"
    assert replace(AT, memory=0.5).regime == "memory"


def test_key_figures_follow_the_expected_step() -> None:
    figures: dict[str, float | None] = {kpi.key: 2.0 for kpi in KPIS}
    figures |= {"bubble_fraction": 0.1, "exposed_communication_seconds": 0.5, "cost_usd": None}
    seen = known(*[0.05] * 20)
    found, correction, warnings = intervals(AT, figures, seen)
    step = told(seen)
    assert correction is not None
    assert correction.physical == 2.0
    assert correction.expected == pytest.approx(2.0 * exp(step.centre))
    assert (correction.families, correction.sources, correction.regime) == (20, 20, "kernels")
    for key, centre in (
        ("step_seconds", step.centre),
        ("days", step.centre),
        ("mfu", -step.centre),
    ):
        low, high = found[key] or (0.0, 0.0)
        assert log(low / 2.0) == pytest.approx(centre - step.size)
        assert log(high / 2.0) == pytest.approx(centre + step.size)
    low, high = found["step_seconds"] or (0.0, 0.0)
    parts = found["exposed_communication_seconds"]
    assert parts == pytest.approx((max(0.5 - (2.0 - low), 0.0), 0.5 + high - 2.0))
    assert found["cost_usd"] is None
    assert [one.code for one in warnings] == ["no-interval"]


def test_physics_alone_has_no_correction_and_an_interval_around_it() -> None:
    seen = known(*[0.05] * 20)
    found, correction, _ = intervals(AT, {"step_seconds": 2.0}, seen, physics=True)
    low, high = found["step_seconds"] or (0.0, 0.0)
    assert correction is None
    assert low * high == pytest.approx(4.0)
    assert log(high / 2.0) > told(seen).size


def test_runs_unlike_all_that_was_published_are_said() -> None:
    _, _, warnings = intervals(replace(AT, experts=True), {"step_seconds": 2.0}, known(*[0.0] * 9))
    assert "interval-of-other-runs" in [one.code for one in warnings]


def test_shipped_residuals_correct_shipped_scenarios_by_less_than_the_limit() -> None:
    assert {one.metric for one in interval.shipped().residuals} == set(LIMIT)
    for name in ("gpt-175b-64xa100-full", "kimi-k2-256xh800"):
        at = circumstances(plan(load(name)), {})
        figures: dict[str, float | None] = {kpi.key: 0.5 for kpi in KPIS}
        found, correction, warnings = intervals(at, figures)
        assert correction is not None
        assert abs(log(correction.factor)) <= LIMIT[STEP]
        without = [key for key, span in found.items() if span is None]
        assert {"step_seconds", "peak_device_bytes", "mfu", "days"}.isdisjoint(without)
        assert all(key in warnings[0].message for key in without)
