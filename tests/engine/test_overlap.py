"""Pairs of passes: worked out by hand, and laws over random passes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.programs import by_hand, segment
from twin.collectives.traffic import Traffic
from twin.engine.overlap import BACKWARD, FORWARD, length_ns, paired
from twin.engine.program import COMPUTE, EXPERT, Step, Template
from twin.engine.simulate import simulate
from twin.schedules.dualpipe import DualPipe
from twin.schedules.interleaved import Interleaved
from twin.schedules.zb_h1 import ZeroBubbleH1

pytestmark = pytest.mark.usefixtures("each_player")

CAPACITY = {"nvlink": 1.0, "nic": 1.0}


def blocks(name: str, *times: int) -> Template:
    """Compute and exchange in turn, each after the one before."""
    return tuple(
        Step(name, COMPUTE, time, (i - 1,) * (i > 0))
        if i % 2 == 0
        else Step("exchange", EXPERT, 0, (i - 1,), Traffic(nic_bytes=time), "expert")
        for i, time in enumerate(times)
    )


def test_a_pair_of_equal_passes_hides_both_exchanges() -> None:
    """Compute 10, exchange 10, compute 10, twice: B 0-10, F 10-20 under B's exchange, B 20-30 under
    F's, F 30-40."""
    one = blocks("forward", 10, 10, 10)
    pair = paired(one, blocks("backward", 10, 10, 10), CAPACITY, 0.0)
    assert length_ns(pair.steps, CAPACITY) == 40
    assert [step.name for step in pair.steps if step.stream == COMPUTE] == [
        "backward",
        "forward",
        "backward",
        "forward",
    ]


def test_a_pass_without_exchanges_fills_the_exchanges_of_the_other() -> None:
    pair = paired(blocks("forward", 30), blocks("backward", 5, 30, 5), CAPACITY, 0.0)
    assert length_ns(pair.steps, CAPACITY) == 40


def test_the_name_of_a_segment_does_not_move_a_pair() -> None:
    """The end of recomputation and the begin of the backward are one stretch of kernels: B 0-10, F
    10-20 under B's exchange, B 20-30 whole under F's, F 30-40 under B's second, B 40-50."""
    one = blocks("forward", 10, 10, 10)
    whole = blocks("backward", 10, 10, 10, 10, 10)
    named: Template = (
        *whole[:2],
        Step("recompute", COMPUTE, 4, (1,)),
        Step("backward", COMPUTE, 6, (2,)),
        *(replace(step, after=(step.after[0] + 1,)) for step in whole[3:]),
    )
    for backward in (whole, named):
        assert length_ns(paired(one, backward, CAPACITY, 0.0).steps, CAPACITY) == 50


passes = st.lists(st.integers(1, 50), min_size=1, max_size=9).map(
    lambda times: times if len(times) % 2 else [*times, 1]
)


@given(passes, passes)
def test_a_pair_is_no_longer_than_its_passes_in_turn_and_no_shorter_than_either(
    forward: list[int], backward: list[int]
) -> None:
    one, other = blocks("forward", *forward), blocks("backward", *backward)
    pair = paired(one, other, CAPACITY, 0.0)
    length = length_ns(pair.steps, CAPACITY)
    alone = [length_ns(template, CAPACITY) for template in (one, other)]
    assert max(alone) <= length <= sum(alone)
    compute = sum(step.duration_ns for step in (*one, *other))
    assert length >= compute


@given(passes, passes)
def test_a_pair_runs_each_step_once_in_its_own_order(
    forward: list[int], backward: list[int]
) -> None:
    one, other = blocks("forward", *forward), blocks("backward", *backward)
    pair = paired(one, other, CAPACITY, 0.0)
    for lane, template in ((FORWARD, one), (BACKWARD, other)):
        places = [i for i, owner in enumerate(pair.lanes) if owner == lane]
        assert len(places) == len(template)
        for place, step in zip(places, template, strict=True):
            merged = pair.steps[place]
            assert (merged.name, merged.stream, merged.traffic) == (
                step.name,
                step.stream,
                step.traffic,
            )
            assert merged.after == tuple(places[i] for i in step.after)


def test_kimi_k2_hides_exchanges_that_plain_interleaving_exposes() -> None:
    """Two stages of two chunks and eight micro-batches; forward 10 + 10 exchange + 10, backward the
    same twice as long. Alone every exchange is exposed; in pairs half of their time is not."""
    shape = (2, 2, 8)

    def exposed(schedule: Interleaved) -> int:
        program = by_hand(
            schedule,
            shape,
            lambda _: blocks("forward", 10, 10, 10),
            lambda _: blocks("backward", 20, 20, 20),
        )
        return sum(row["exposed_expert"] for row in simulate(program).breakdown_ns)

    plain = exposed(Interleaved())
    assert plain == 2 * (2 * 8) * (10 + 20)
    hidden = exposed(Interleaved(extra_warmup=1, overlap_all_to_all=True))
    assert hidden <= 0.5 * plain


def test_the_engine_plays_the_bubbles_that_were_published() -> None:
    """F = I = W = 100 on 8 stages, 16 micro-batches. ZB-H1: (p - 1)(F + B - 2 W); DualPipe:
    (p / 2 - 1)(F&B + B - 3 W), B the whole backward and F&B a pair."""
    zb = by_hand(
        ZeroBubbleH1(),
        (8, 1, 16),
        lambda _: segment(100),
        lambda _: segment(100, "backward_input"),
        weights=lambda _: segment(100, "backward_weight"),
    )
    assert {row["bubble"] for row in simulate(zb).breakdown_ns} == {7 * (100 + 200 - 200)}
    dual = by_hand(
        DualPipe(),
        (8, 1, 16),
        lambda _: segment(100),
        lambda _: segment(200, "backward"),
        weights=lambda _: segment(100, "backward_weight"),
    )
    passes = {
        key: segment(100, "backward_input") if key[0] == "I" else template
        for key, template in dual.passes.items()
    }
    trace = simulate(replace(dual, passes=passes))
    assert {row["bubble"] for row in trace.breakdown_ns} == {3 * (300 + 200 - 300)}
