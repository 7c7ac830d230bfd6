"""Kernels beside communication: the law, and the training trace that it is taken from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.evidence.calibrate.kernels import trace
from twin.hardware.roofline import slowdown
from twin.loading import load_part

SHARES = st.floats(0, 1)
LOST = st.floats(0, 0.9)


@given(SHARES, LOST)
def test_alone_nothing_is_slower(share: float, lost: float) -> None:
    assert slowdown(share, 0, 132, lost) == 1.0


@given(SHARES, st.integers(1, 131), st.integers(1, 131), LOST)
def test_more_held_is_never_faster(share: float, one: int, two: int, lost: float) -> None:
    less, more = sorted((one, two))
    assert 1.0 <= slowdown(share, less, 132, lost) <= slowdown(share, more, 132, lost)


def test_arithmetic_lasts_longer_by_the_sms_that_are_gone_and_memory_does_not() -> None:
    """20 of 132 held: 1.179 times as long; a kernel half of memory 1.089 times."""
    assert slowdown(1.0, 20, 132, 0.0) == pytest.approx(132 / 112)
    assert slowdown(0.5, 20, 132, 0.0) == pytest.approx((132 / 112 + 1) / 2)
    assert slowdown(0.0, 20, 132, 0.0) == 1.0
    assert slowdown(0.0, 20, 132, 0.1) == pytest.approx(1 / 0.9)


def test_products_reach_in_the_trace_what_the_law_leaves_of_their_speed_alone() -> None:
    """0.78 to 0.81 of it: dense and grouped FP8, and the weights of experts' up-projections."""
    parts = {part.name: part for part in trace()}
    for name in ("dense", "grouped", "weights, experts' up"):
        part = parts[name]
        assert 0.77 < part.alone / part.measured < 0.82, name
        assert part.beside / part.measured == pytest.approx(1.0, abs=0.035), name


def test_what_the_sms_do_not_explain_lies_in_the_range_of_contention() -> None:
    known = load_part("calibrations", "h800-hopper-bf16").ledger["contention"]
    assert known.range is not None
    low, high = (float(str(end)) for end in known.range)
    profile = load_part("calibrations", "h800-hopper-bf16").spec
    without = {
        part.name: 1 - part.beside * (1 - profile.contention) / part.measured for part in trace()
    }
    for name in ("dense", "grouped", "weights, experts' up"):
        assert low <= without[name] <= high, (name, without[name])


def test_all_kernels_of_the_trace_together_are_met_within_five_percent() -> None:
    """99.4 ms of seven classes; the single ones are within 20 %, but for the casts, of which the
    twin counts half again as many as the trace has under that name (docs/kernels.md)."""
    parts = trace()
    measured = sum(part.measured for part in parts)
    assert measured == pytest.approx(99.4e-3, rel=1e-3)
    assert sum(part.beside for part in parts) == pytest.approx(measured, rel=0.05)
    for part in parts:
        if part.name != "casts":
            assert part.beside == pytest.approx(part.measured, rel=0.2), part.name
