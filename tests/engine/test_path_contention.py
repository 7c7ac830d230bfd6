"""The fast path where what one turn leaves under way meets the next: reductions of gradients,
messages that wait for them, and activations on their way to the host and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from tests.engine.k2_plans import NORMS, lowered
from tests.engine.programs import by_hand, segment, with_exchange
from tests.engine.scenarios import moe
from twin.collectives.traffic import Traffic
from twin.engine import lower, simulate
from twin.engine.longest_path import reductions_meet
from twin.engine.program import COMPUTE, DATA, Program, StageMessage, Step, Template
from twin.engine.trace import Trace
from twin.planning import plan
from twin.schedules.gpipe import GPipe
from twin.schedules.interleaved import Interleaved
from twin.schedules.one_f_one_b import OneForwardOneBackward

SMALL = {
    "cluster.nodes": 512,
    "parallel.tensor": 1,
    "parallel.context": 1,
    "parallel.expert": 16,
    "parallel.pipeline": 8,
    "memory.offload": [],
}


def fast(program: Program) -> Trace:
    return simulate(program, fidelity="fast")


def reduced(duration: int, nic_bytes: float, *, waited: bool = False) -> Template:
    """A kernel, a reduction behind it, and a kernel that may wait for that."""
    flow = Traffic(nic_bytes=nic_bytes)
    return (
        Step("backward", COMPUTE, duration, ()),
        Step("reduce", DATA, 0, (0,), flow, "data"),
        Step("backward", COMPUTE, duration, (1,) if waited else (0,)),
    )


def test_a_reduction_shares_the_nic_with_the_exchange_of_the_next_turn() -> None:
    """One stage, forward (10, exchange of 40 B at 1 B/ns, 10) and backward (20, 20 with a reduction
    of 60 B behind the first half), three times. The reduction has 40 B left when the backward ends,
    30 when the next exchange starts: they share for 60 ns, until 30 B of either are through, and
    the exchange ends 10 ns later. Two forwards meet a reduction: 90 each instead of 60; the last
    one is over 40 after its backward: 60 + 3 x 40 + 2 x 90 + 40."""
    program = by_hand(
        OneForwardOneBackward(),
        (1, 1, 3),
        lambda _: with_exchange(20, 40.0),
        lambda _: reduced(20, 60.0),
    )
    assert simulate(program, extrapolate=False).step_ns == 400
    assert reductions_meet(program)
    assert fast(program).step_ns == 400


def test_a_message_leaves_before_the_reduction_behind_its_result() -> None:
    """Reductions of 50 are over before the next exchange, so the step is as long as without them,
    and the last one: where messages waited for them it would be 50 longer per micro-batch."""

    def made(backward: Template) -> Program:
        shape = 2, 1, 6
        forward, message = with_exchange(200, 40.0), StageMessage(8.0, "nvlink", 3)
        return by_hand(
            OneForwardOneBackward(), shape, lambda _: forward, lambda _: backward, message
        )

    backward = reduced(100, 50.0)[:2]
    plain, program = made(backward[:1]), made(backward)
    assert simulate(program, extrapolate=False).step_ns == simulate(plain).step_ns + 50
    assert fast(program).step_ns == simulate(program).step_ns


def test_a_message_and_the_exchange_of_the_next_turn_slow_each_other() -> None:
    """The first forward ends at 60, then its message of 60 B leaves; the second's exchange of 40 B
    shares the NIC from 70 on and takes 80. Backwards exchange nothing."""

    def made(link: Literal["nic", "nvlink"]) -> Program:
        def forward(chunk: int) -> Template:
            return with_exchange(20, 40.0) if chunk == 0 else segment(20)

        message = StageMessage(60.0, link, 0)
        return by_hand(GPipe(), (2, 1, 2), forward, lambda _: segment(20), message)

    shared, apart = made("nic"), made("nvlink")
    # Forwards until 160, a message, a forward and a backward, two messages back, a backward.
    assert simulate(shared, extrapolate=False).step_ns == 160 + 60 + 2 * 20 + 2 * 60 + 20
    assert fast(shared).step_ns == 400
    # Apart, forwards take 60 each.
    assert fast(apart).step_ns == simulate(apart, extrapolate=False).step_ns == 360


def test_a_reduction_that_closes_the_step_meets_the_passes_that_are_left() -> None:
    """Backwards of the later chunk are over first; its gradients, 400 B, are reduced while those of
    the earlier one exchange 40 B each."""
    backward = with_exchange(20, 40.0, "backward")
    program = by_hand(
        Interleaved(),
        (2, 2, 4),
        lambda _: segment(20),
        lambda _: backward,
        StageMessage(0.0, "nic", 0),
    )
    reduction = Step("all_reduce_gradients", DATA, 0, (), Traffic(nic_bytes=400.0))
    closing = replace(program, finish=((reduction,),) * 2, ready_after=((2,), (3,)))
    assert simulate(program, extrapolate=False).step_ns == 720
    # Four exchanges of the earlier chunk's backwards meet it; alone it would be over at 1,000.
    assert fast(closing).step_ns == simulate(closing, extrapolate=False).step_ns == 1080


def test_a_chain_of_a_thousand_reductions_is_walked() -> None:
    """Each waits for the one before, so none may be taken for another instance moved in time: what
    released it leads back to the first."""
    backward = (Step("backward", COMPUTE, 10, ()), Step("reduce", DATA, 100, (0,)))
    program = by_hand(GPipe(), (1, 1, 1200), lambda _: segment(5), lambda _: backward)
    assert not reductions_meet(program)
    assert fast(program).step_ns == 1200 * 5 + 10 + 1200 * 100


@pytest.mark.parametrize("zero", [0, 2, 3])
@pytest.mark.parametrize("offload", ["[]", "[activations]"])
def test_the_breakdown_of_each_role_sums_to_the_step(zero: int, offload: str) -> None:
    program = lower(plan(moe(2, 4, 2, 2, f"parallel.zero={zero}", f"memory.offload={offload}")))
    walked, played = fast(program), simulate(program)
    for row in walked.breakdown_ns:
        assert sum(row.values()) == walked.step_ns
    assert walked.step_ns == pytest.approx(played.step_ns, rel=0.02)
    assert walked.link_bytes == pytest.approx(played.link_bytes, rel=1e-12)


@pytest.mark.parametrize("zero", [1, 2])
def test_a_slow_way_to_the_host_holds_up_forwards_and_backwards(zero: int) -> None:
    more = f"parallel.zero={zero}", "memory.offload=[activations]"
    program = lower(plan(moe(2, 4, 1, 2, *more)))
    offload = program.offload
    assert offload is not None
    slow = replace(program, offload=replace(offload, bytes=tuple(200 * b for b in offload.bytes)))
    walked, played = fast(slow), simulate(slow)
    assert walked.step_ns > 1.5 * fast(program).step_ns
    assert walked.step_ns == pytest.approx(played.step_ns, rel=0.02)


def test_a_plan_of_kimi_k2_with_copies_comes_out_as_by_events() -> None:
    """13 % off when each pass was played alone (2026-11-21)."""
    program = lowered(
        {
            **SMALL,
            "cluster.nodes": 256,
            "parallel.zero": 1,
            "parallel.virtual": 1,
            "parallel.expert": 128,
            "parallel.micro_batch": 2,
            "parallel.dispatcher": "alltoall",
            "parallel.schedule": {"kind": "1f1b"},
            "memory.recompute": NORMS,
            "memory.offload": ["activations"],
        }
    )
    assert program is not None
    assert not reductions_meet(program)
    assert fast(program).step_ns == pytest.approx(simulate(program).step_ns, rel=0.05)
