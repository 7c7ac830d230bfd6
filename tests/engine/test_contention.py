"""Kernels beside communication: how much slower, for how long, and where the time is named."""

from __future__ import annotations

from dataclasses import replace

from tests.engine.programs import by_hand, segment
from twin.collectives.base import Traffic
from twin.engine import simulate
from twin.engine.program import COMPUTE, EXPERT, TO_HOST, Program, Step, Template
from twin.hardware.roofline import slowdown
from twin.schedules.one_f_one_b import OneForwardOneBackward


def beside(bytes_: float, kernel: int, *, sms: int, stream: int = EXPERT) -> Template:
    """An exchange of so many ns, and a kernel that starts with it and does not wait for it."""
    flow = Traffic(nic_bytes=bytes_)
    if stream == TO_HOST:
        flow = Traffic(to_host_bytes=bytes_)
    return (
        Step("dispatch", stream, 0, (), flow, sms=sms),
        Step("forward", COMPUTE, kernel, (), sm_bound=1.0),
    )


def program(forward: Template, contention: float = 0.0) -> Program:
    """One stage, one micro-batch, on a GPU of ten SMs."""
    made = by_hand(
        OneForwardOneBackward(), (1, 1, 1), lambda _: forward, lambda _: segment(0, "backward")
    )
    return replace(made, sms=10, contention=contention)


def test_a_kernel_has_to_do_with_the_sms_that_communication_leaves() -> None:
    """5 of 10 SMs for 1,000 ns: 500 ns of work are done then, the other 1,500 at full speed."""
    trace = simulate(program(beside(1000.0, 2000, sms=5)))
    assert trace.step_ns == 1000 + 1500
    assert trace.breakdown_ns[0]["contention"] == 500
    assert trace.breakdown_ns[0]["compute"] == 2000


def test_a_kernel_that_ends_first_is_slow_to_its_end() -> None:
    trace = simulate(program(beside(1000.0, 400, sms=5)))
    assert trace.breakdown_ns[0]["contention"] == 400
    assert trace.breakdown_ns[0]["exposed_expert"] == 0  # nothing waits for it


def test_memory_bound_kernels_lose_only_bandwidth() -> None:
    forward = beside(10_000.0, 900, sms=5)
    bound = (forward[0], replace(forward[1], sm_bound=0.0))
    assert simulate(program(bound)).breakdown_ns[0]["contention"] == 0
    assert simulate(program(bound, 0.1)).breakdown_ns[0]["contention"] == 100


def test_copy_engines_hold_no_sms() -> None:
    made = program(beside(1000.0, 2000, sms=0, stream=TO_HOST), 0.1)
    trace = simulate(made)
    assert trace.breakdown_ns[0]["contention"] == 0
    assert trace.step_ns == 2000


def test_communication_never_gets_more_than_half_of_the_sms() -> None:
    trace = simulate(program(beside(10_000.0, 1000, sms=9)))
    assert trace.breakdown_ns[0]["contention"] == 1000


def test_more_sms_held_never_make_a_kernel_faster() -> None:
    times = [slowdown(0.7, held, 132, 0.05) for held in range(66)]
    assert times == sorted(times)
    assert slowdown(0.7, 0, 132, 0.0) == 1.0
