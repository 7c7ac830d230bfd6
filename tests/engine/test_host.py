"""The host thread beside the device: worked out by hand, and laws."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.programs import by_hand
from twin.arch.ops import Op, Work
from twin.engine import plan
from twin.engine.host import ISSUE, in_thread, with_host, without_host
from twin.engine.overlap import length_ns, paired
from twin.engine.program import COMPUTE, EXPERT, HOST, StageMessage, Step, Template
from twin.engine.simulate import simulate
from twin.evidence.loop.layouts import find
from twin.hardware.host_costs import HostCosts, largest
from twin.loading import load_part
from twin.network.links import capacity
from twin.planning.layer_times import host_costs
from twin.planning.memory import boundary_bytes
from twin.schedules.one_f_one_b import OneForwardOneBackward
from twin.spec.software import MessageSpec

CAPACITY = {"nvlink": 1.0, "nic": 1.0}
US = 1000


def kernels(*times: tuple[int, int]) -> Template:
    """Segments one after another: microseconds of the device, and of the host."""
    return tuple(
        Step("forward", COMPUTE, time * US, (i - 1,) * (i > 0), host_ns=host * US)
        for i, (time, host) in enumerate(times)
    )


def hosted(template: Template, sync: int = 0) -> Template:
    return with_host(template, CAPACITY, sync * US)


def length(template: Template) -> float:
    return length_ns(template, CAPACITY) / US


def test_a_host_that_is_ahead_leaves_no_step() -> None:
    template = kernels((10, 4), (10, 4), (10, 4))
    assert hosted(template) is template


def test_a_slow_host_makes_the_pass_as_long_as_what_it_issues() -> None:
    """Three segments of 10 that take 16 each to issue."""
    assert length(hosted(kernels((10, 16), (10, 16), (10, 16)))) == 48


def test_a_segment_does_not_start_before_its_launch_begins_nor_end_before_all_is_issued() -> None:
    """Issued by 30, 35 and 40: the second starts at 30, the third at 40 as the second ends."""
    template = hosted(kernels((10, 30), (10, 5), (10, 5)))
    assert length(template) == 50


def test_the_host_waits_for_what_it_asks_and_the_device_for_the_host() -> None:
    """Numbers of rows come to the host at 10 + 5; it sees them 3 later, and what follows runs from
    18 on, one after the other: 18 + 10; issued by 22, so the last starts at 28."""
    counts = Step("counts", EXPERT, 5 * US, (0,), None, host_ns=1 * US, asks="end")
    template = (
        *kernels((10, 2)),
        counts,
        replace(kernels((10, 4))[0], after=(1,)),
        replace(kernels((10, 4))[0], after=(2,)),
    )
    assert length(template) == 35
    assert length(hosted(template, sync=3)) == 38


def test_a_question_of_the_start_does_not_wait_for_the_end() -> None:
    """The host goes on at 10, issues 6, and the exchange is through at 30 by then."""
    sent = Step("dispatch", EXPERT, 20 * US, (0,), None, host_ns=1 * US, asks="start")
    template = (*kernels((10, 2)), sent, replace(kernels((10, 6))[0], after=(1,)))
    assert length(hosted(template)) == 40


def test_what_an_early_host_has_issued_is_no_step() -> None:
    """It asks by 3 for what comes at 15, so no step says what it did until then. The second kernel
    waits for the 3 of the answer; 8 are left to issue."""
    counts = Step("counts", EXPERT, 5 * US, (0,), None, host_ns=1 * US, asks="end")
    first, last = kernels((10, 2), (10, 4))
    template = hosted((first, counts, replace(last, after=(1,)), last), sync=3)
    assert [round(step.duration_ns / US) for step in template if step.stream == HOST] == [3, 8]
    assert length(template) == 15 + 3 + 10 + 10


def test_an_exchange_that_nothing_waits_for_is_not_held() -> None:
    """An exchange of 5 could start at 2 and is issued from 6 on; the kernel that needs it starts at
    22 anyway."""
    sent = Step("combine", EXPERT, 5 * US, (0,), None, host_ns=1 * US)
    beside, late = (replace(kernels((time, 15))[0], after=()) for time in (2, 9))
    first = kernels((2, 6))[0]
    template = hosted((first, sent, beside, replace(late, after=(1,))))
    assert [step.after for step in template if step.name == "combine"] == [(0,)]
    assert length(template) == 6 + 1 + 15 + 15


def test_the_host_issues_both_passes_of_a_pair() -> None:
    """Two passes of two segments each, four times 20 to issue."""
    forward, backward = kernels((10, 20), (10, 20)), kernels((10, 20), (10, 20))
    pair = paired(hosted(forward), hosted(backward), CAPACITY, 0.0)
    assert length(pair.steps) == 80
    assert {
        lane for lane, step in zip(pair.lanes, pair.steps, strict=True) if step.stream == HOST
    } <= {0, 1}


segments = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=8)


@given(segments)
def test_a_pass_is_no_shorter_than_host_or_device_and_no_longer_than_both(times) -> None:
    template = kernels(*times)
    found = length(hosted(template))
    device, host = (sum(column) for column in zip(*times, strict=True))
    assert max(device, host) - 0.5 <= found <= device + host
    assert without_host(hosted(template)) == template


@given(segments, st.integers(0, 7))
def test_a_slower_host_never_makes_a_pass_shorter(times, place) -> None:
    slower = [(t, h + 9 * (i == place)) for i, (t, h) in enumerate(times)]
    assert length(hosted(kernels(*slower))) >= length(hosted(kernels(*times))) - 0.5


asking = st.tuples(
    st.integers(0, 40), st.integers(0, 40), st.sampled_from(["", "start", "end"]), st.booleans()
)


@given(st.lists(asking, min_size=1, max_size=8), st.integers(0, 7))
def test_nor_does_a_slower_host_beside_exchanges_that_it_asks_for(found, place) -> None:
    def template(slower: int) -> Template:
        return tuple(
            Step(
                *("sent" if sent else "forward", EXPERT if sent else COMPUTE, time * US),
                (i - 1,) * (i > 0) if sent or i % 2 else (),
                host_ns=(host + slower * (i == place)) * US,
                asks=asks,
            )
            for i, (time, host, asks, sent) in enumerate(found)
        )

    assert length(hosted(template(9), sync=3)) >= length(hosted(template(0), sync=3)) - 0.5 * len(
        found
    )


@pytest.mark.parametrize(("ranks", "expected"), [(1, 0.0), (2, 0.564), (8, 1.424), (32, 2.070)])
def test_ranks_that_exchange_wait_for_the_slowest_host(ranks, expected) -> None:
    """Expected largest of normal numbers (Harter 1961, table 1), within 5 %."""
    assert largest(ranks) == pytest.approx(expected, rel=0.05)
    software = load_part("software", "megatron-core").spec.host
    assert software is not None
    calibration = load_part("calibrations", "h100-nemo").spec
    spread = software.model_copy(update={"rank_spread": 0.1, "slowness": 1.0})
    assert HostCosts(calibration, spread, ranks=ranks).slowness == 1 + 0.1 * largest(ranks)


def test_the_host_runs_ahead_under_a_long_backward() -> None:
    """Forwards of 6 that take 10 to issue, backwards of 14 that take 4: alone 10 and 14, in turn 20
    each, since the host issues the next forward under the backward."""
    forward = hosted(tuple(replace(one, name="forward") for one in kernels((3, 5), (3, 5))))
    backward = hosted(tuple(replace(one, name="backward") for one in kernels((7, 2), (7, 2))))
    program = by_hand(OneForwardOneBackward(), (1, 1, 8), lambda _: forward, lambda _: backward)
    trace = simulate(program)
    assert trace.step_ns < 8 * 24 * US
    assert trace.step_ns == pytest.approx(8 * 20 * US, rel=0.05)
    assert trace.breakdown_ns[0]["host"] == pytest.approx(trace.step_ns - 8 * 20 * US, abs=5 * US)


def test_a_pass_that_never_waits_for_the_host_takes_it_time_all_the_same() -> None:
    """Forwards of 6 that take 10 to issue, backwards of 14 that take 12: 22 for the host, 20 for
    the device. A host that had the backwards for nothing would be ahead of the forwards."""
    forward = hosted(tuple(replace(one, name="forward") for one in kernels((3, 5), (3, 5))))
    backward = hosted(tuple(replace(one, name="backward") for one in kernels((7, 6), (7, 6))))
    assert not any(step.stream == HOST for step in backward)
    program = by_hand(OneForwardOneBackward(), (1, 1, 8), lambda _: forward, lambda _: backward)
    assert simulate(program).step_ns == pytest.approx(8 * 22 * US, rel=0.02)
    ahead = by_hand(OneForwardOneBackward(), (1, 1, 8), lambda _: backward, lambda _: backward)
    assert simulate(ahead).step_ns == 16 * 14 * US


def test_a_host_that_waits_for_messages_issues_nothing_in_a_bubble() -> None:
    """Two stages, four micro-batches, forwards that take 10 to issue and backwards that take 20: a
    slot of the pipeline is 30, and there are five. A host that does not wait issues the backward in
    the bubble of 30 behind the first forward of stage 0: its five slots are shorter."""
    forward = hosted(tuple(replace(one, name="forward") for one in kernels((3, 5), (3, 5))))
    backward = hosted(tuple(replace(one, name="backward") for one in kernels((7, 10), (7, 10))))
    steps: list[int] = []
    for awaited in (False, True):
        message = StageMessage(0.0, "nic", 0, awaited=awaited)
        program = by_hand(
            *(OneForwardOneBackward(), (2, 1, 4), lambda _: forward, lambda _: backward),
            message=message,
        )
        steps.append(simulate(program).step_ns)
    assert steps[1] == pytest.approx(5 * 30 * US, rel=0.001)
    assert steps[0] < steps[1] - 5 * US


def test_a_pass_of_thousands_of_segments_that_all_wait_for_the_host_is_played() -> None:
    """Each segment of 1 takes 3 to issue: host and device end together, 3 for each."""
    passes = hosted(kernels(*[(1, 3)] * 2000))
    program = by_hand(OneForwardOneBackward(), (1, 1, 4), lambda _: passes, lambda _: passes)
    trace = simulate(program)
    assert trace.step_ns == pytest.approx(8 * 2000 * 3 * US, rel=0.001)
    row = trace.breakdown_ns[0]
    assert row["host"] == pytest.approx(trace.step_ns - row["compute"], rel=0.01)


def test_a_thread_that_is_its_own_device_adds_what_it_issues() -> None:
    """Three segments of 10 that take 4 each to issue: 14 each, where a host ahead shows nothing."""
    template = in_thread(kernels((10, 4), (10, 4), (10, 4)), 0.0)
    assert length(template) == 42
    assert [step.name for step in template[:2]] == [ISSUE, "forward"]


def test_a_thread_goes_on_beside_a_transfer_but_waits_for_its_answer() -> None:
    """Kernel 2 + 10, exchange issued by 13 and through at 33. Asked for, it is seen at 36, and
    4 + 10 follow: 50. A kernel that does not wait for it is over at 27 meanwhile."""
    sent = Step("dispatch", EXPERT, 20 * US, (0,), None, host_ns=1 * US, asks="end")
    last = replace(kernels((10, 4))[0], after=(1,))
    assert length(in_thread((*kernels((10, 2)), sent, last), 3 * US)) == 50
    free, plain = replace(last, after=(0,)), replace(sent, asks="")
    assert length(in_thread((*kernels((10, 2)), plain, free), 3 * US)) == 33


@given(segments)
def test_one_thread_takes_as_long_as_host_and_device_together(times) -> None:
    template = kernels(*times)
    found = length(in_thread(template, 0.0))
    assert found == pytest.approx(sum(map(sum, times)))
    free = kernels(*((time, 0) for time, _ in times))
    assert in_thread(free, 0.0) is free


def test_what_a_thread_issues_is_host_in_the_breakdown() -> None:
    """Eight micro-batches, 6 + 10 forward and 14 + 4 backward: 34 each, 14 of them the host's."""
    forward = in_thread(kernels((3, 5), (3, 5)), 0.0)
    turned = tuple(replace(one, name="backward") for one in kernels((7, 2), (7, 2)))
    backward = in_thread(turned, 0.0)
    program = by_hand(OneForwardOneBackward(), (1, 1, 8), lambda _: forward, lambda _: backward)
    trace = simulate(program)
    assert trace.step_ns == 8 * 34 * US
    assert trace.breakdown_ns[0]["host"] == 8 * 14 * US
    assert trace.breakdown_ns[0]["compute"] == 8 * 20 * US


def test_what_is_replayed_from_a_graph_costs_the_host_nothing() -> None:
    software = load_part("software", "megatron-core").spec.host
    assert software is not None
    calibration = load_part("calibrations", "h100-nemo").spec
    router = Op("router", "gemm", Work(0.0, 0.0, 1), Work(0.0, 0.0, 1))
    assert HostCosts(calibration, software).op(router, "forward") > 50e-6
    graphed = software.model_copy(update={"graphed": ("router",)})
    assert HostCosts(calibration, graphed).op(router, "forward") == 0.0
    assert HostCosts(calibration, graphed).op(replace(router, name="qkv"), "forward") > 50e-6
    whole = HostCosts(calibration, software.model_copy(update={"graphed": ("all",)}))
    assert whole.op(replace(router, name="qkv"), "forward") == whole.exchange("dispatch") == 0.0


def test_passes_in_one_graph_leave_the_host_nothing_but_the_step() -> None:
    software = load_part("software", "megatron-core-replayed").spec.host
    assert software is not None
    host = HostCosts(load_part("calibrations", "h100-nemo").spec, software)
    assert host.microbatch == host.checkpoint == host.exchange("dispatch") == 0.0
    assert not any(host.asks(name, asks=True) for name in ("expert_counts", "dispatch"))
    assert host.step(()) > 0


def test_a_layer_that_is_computed_again_has_a_checkpoint() -> None:
    """An engine and random states for each, where every layer is: 60 + 200 us."""
    software = load_part("software", "megatron-core").spec.host
    assert software is not None
    host = HostCosts(load_part("calibrations", "h100-nemo").spec, software)
    assert host.checkpoint == pytest.approx(software.slowness * 260e-6)


def test_a_cast_of_experts_costs_the_host_a_launch_per_kernel() -> None:
    software = load_part("software", "megatron-core-tuned").spec.host
    assert software is not None
    host = HostCosts(load_part("calibrations", "h100-nemo").spec, software)
    cast = Op("experts_cast", "cast", Work(0.0, 0.0, 32), Work())
    items = software.items
    assert host.op(cast, "forward") == pytest.approx(items["fp8_cast"] + 32 * items["fp8_launch"])


def test_messages_take_a_thread_that_is_host_and_device_its_time() -> None:
    """A host beside a device does not move its bytes."""
    software = load_part("software", "reference-cpu").spec.host
    assert software is not None
    calibration = load_part("calibrations", "h100-nemo").spec
    alone = HostCosts(calibration, software).microbatch
    moving = HostCosts(calibration, software, pass_messages=500e-6)
    assert moving.microbatch == pytest.approx(alone + 500e-6)
    beside = replace(moving, software=software.model_copy(update={"ahead": True}))
    assert beside.microbatch == pytest.approx(alone)


MESSAGE = MessageSpec.model_validate(
    {"each": "80us", "piece": "25us", "frame": "3948B", "burst": "100us"}
)


@pytest.mark.parametrize(("rate", "pieces"), [(12.5e6, 67), (50e6, 67), (125e6, 23), (625e6, 5)])
def test_a_message_takes_a_wake_for_each_piece_of_its_link(rate: float, pieces: int) -> None:
    """256 KiB: frames of 3,948 bytes one by one up to 39 MB/s and one of 5,000; three of 12,500
    bytes, 15 of 62,500."""
    assert MESSAGE.seconds(1 << 18, rate) == pytest.approx(80e-6 + pieces * 25e-6)


@pytest.mark.parametrize(
    ("degrees", "messages"),
    [
        (["parallel.pipeline=1", "parallel.virtual=1", "parallel.schedule=1f1b"], 0),
        (["parallel.virtual=1", "parallel.schedule=1f1b"], 1.0),
        ([], 1.5),
    ],
)
def test_chunks_have_a_message_to_each_neighbour(degrees: list[str], messages: float) -> None:
    """Two stages of two chunks: (1 + 2 + 2 + 1) / 4."""
    (layout,) = find(["bare-pp2-interleaved-200mbps"], sets=degrees)
    own = layout.scenario
    assert own.software is not None
    assert own.software.host is not None
    assert own.software.host.message is not None
    each = own.software.host.message.seconds(boundary_bytes(own), capacity(own.cluster, "nic"))
    costs = host_costs(own, plan(own).placements)
    assert costs.pass_messages == pytest.approx(messages * each)
