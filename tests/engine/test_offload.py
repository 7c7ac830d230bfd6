"""Activations through host memory: hidden where the link has time for them, a stall where not, and
what they take from the NIC behind the same PCIe link."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engine.programs import apart, by_hand, segment, with_exchange
from twin.engine import simulate
from twin.engine.link_map import Rates
from twin.engine.program import STREAMS, Offload, Program, StageMessage
from twin.engine.trace import Trace
from twin.planning.offload import trips
from twin.schedules.base import Schedule
from twin.schedules.gpipe import GPipe
from twin.schedules.interleaved import Interleaved
from twin.schedules.one_f_one_b import OneForwardOneBackward
from twin.schedules.zb_h1 import ZeroBubbleH1
from twin.schedules.zb_h2 import ZeroBubbleH2

pytestmark = pytest.mark.usefixtures("each_player")

K2 = Interleaved(extra_warmup=1, overlap_all_to_all=True, defer_weight_grad=True)
SCHEDULES = [
    (OneForwardOneBackward(), (4, 1, 8)),
    (Interleaved(), (4, 2, 8)),
    (K2, (4, 2, 16)),
    (ZeroBubbleH1(), (4, 1, 8)),
    (ZeroBubbleH2(), (4, 1, 8)),
    (GPipe(), (3, 1, 5)),
]


def offloading(
    schedule: Schedule, shape: tuple[int, int, int], size: float, rate: float, nic: float = 0.0
) -> Program:
    """Forwards of 1,000 ns, backwards of 2,000; every pass keeps `size` bytes, and copies go at
    `rate` bytes/ns a direction."""
    made = by_hand(
        schedule,
        shape,
        lambda _: with_exchange(1000, nic) if nic else segment(1000),
        lambda _: segment(2000, "backward"),
        weights=lambda _: segment(500, "backward_weight"),
    )
    chunks = len(made.chunk_map.stage_of)
    links = Rates(nvlink=1.0, nic=1.0, pcie=rate, dram=4 * rate)
    return replace(
        made, wiring=apart(shape[0], links, host=True), offload=Offload((size,) * chunks, 0)
    )


def copies(trace: Trace, stream: str) -> int:
    return int((trace.spans.stream == STREAMS.index(stream)).sum())


@pytest.mark.parametrize(("schedule", "shape"), SCHEDULES)
def test_what_goes_out_comes_back_and_only_what_waits_long_goes(
    schedule: Schedule, shape: tuple[int, int, int]
) -> None:
    made = offloading(schedule, shape, 500.0, 1.0)
    expected = sum(len(trips(order)) for order in schedule.order(*shape))
    trace = simulate(made)
    assert copies(trace, "to_host") == copies(trace, "from_host") == expected > 0


@pytest.mark.parametrize(("schedule", "shape"), SCHEDULES)
def test_copies_that_fit_under_the_next_pass_cost_nothing(
    schedule: Schedule, shape: tuple[int, int, int]
) -> None:
    quick = offloading(schedule, shape, 900.0, 1.0)
    free = replace(quick, offload=None)
    trace = simulate(quick)
    assert trace.step_ns == simulate(free).step_ns
    assert all(row["exposed_offload"] == 0 for row in trace.breakdown_ns)


@pytest.mark.parametrize(("schedule", "shape"), SCHEDULES)
def test_copies_that_do_not_fit_show_as_a_stall(
    schedule: Schedule, shape: tuple[int, int, int]
) -> None:
    slow = offloading(schedule, shape, 9000.0, 1.0)
    trace = simulate(slow)
    assert trace.step_ns > simulate(replace(slow, offload=None)).step_ns
    assert sum(row["exposed_offload"] for row in trace.breakdown_ns) > 0
    assert all(sum(row.values()) == trace.step_ns for row in trace.breakdown_ns)


def test_a_copy_slows_the_nics_traffic_on_the_same_pcie_link() -> None:
    """Exchanges of 600 bytes at 1 byte/ns beside copies at 1.2: they share 1.2."""
    made = offloading(OneForwardOneBackward(), (4, 1, 8), 900.0, 1.2, nic=600.0)
    trace = simulate(made)
    alone = simulate(replace(made, offload=None))
    exposed = [sum(row["exposed_expert"] for row in one.breakdown_ns) for one in (trace, alone)]
    assert exposed[0] > exposed[1]


def test_a_long_step_with_copies_repeats_as_the_whole_one_does() -> None:
    made = offloading(K2, (4, 2, 128), 1500.0, 1.0)
    made = replace(made, message=StageMessage(10.0, "nic", 5))
    whole = simulate(made, extrapolate=False)
    proven = simulate(made)
    assert proven.played_microbatches < 128
    assert abs(proven.step_ns - whole.step_ns) <= 1000
    assert proven.link_bytes == pytest.approx(whole.link_bytes)
