"""Laws of the engine over random programs and small scenarios."""

from __future__ import annotations

from functools import cache
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.programs import by_hand, with_exchange
from tests.engine.scenarios import dense, moe
from twin.engine import lower, plan, simulate
from twin.engine.events import play
from twin.engine.program import Program, StageMessage
from twin.engine.unroll import unroll
from twin.scenario import Scenario
from twin.schedules.base import Schedule
from twin.schedules.dualpipe import DualPipe
from twin.schedules.gpipe import GPipe
from twin.schedules.interleaved import Interleaved
from twin.schedules.one_f_one_b import OneForwardOneBackward
from twin.schedules.zb_h1 import ZeroBubbleH1
from twin.schedules.zb_h2 import ZeroBubbleH2

pytestmark = pytest.mark.usefixtures("each_player")

SHAPES: list[tuple[Schedule, tuple[int, int, int]]] = [
    (OneForwardOneBackward(), (3, 1, 7)),
    (GPipe(), (3, 1, 5)),
    (Interleaved(), (3, 2, 6)),
    (Interleaved(extra_warmup=1, overlap_all_to_all=True, defer_weight_grad=True), (3, 2, 6)),
    (ZeroBubbleH1(), (3, 1, 7)),
    (ZeroBubbleH2(), (3, 1, 7)),
    (DualPipe(), (2, 1, 6)),
]


def program(
    shape: int, durations: list[int], exchanges: list[int], latency: int, rate: float = 1.0
) -> Program:
    """A random program on which no two flows meet: exchanges alone on the NICs, messages made of
    latency."""
    schedule, sizes = SHAPES[shape]
    return by_hand(
        schedule,
        sizes,
        lambda c: with_exchange(durations[c], exchanges[c] / rate),
        lambda c: with_exchange(durations[6 + c], exchanges[6 + c] / rate, "backward"),
        StageMessage(0.0, "nic", latency),
    )


twelve = st.lists(st.integers(10, 500), min_size=12, max_size=12)
shapes = st.integers(0, len(SHAPES) - 1)


@settings(max_examples=40)
@given(shapes, twelve, twelve, st.integers(0, 200), st.integers(0, 11), st.integers(0, 9))
def test_a_faster_operation_never_makes_the_step_slower(
    shape: int, durations: list[int], exchanges: list[int], latency: int, which: int, less: int
) -> None:
    faster = durations.copy()
    faster[which] -= less
    slow = simulate(program(shape, durations, exchanges, latency)).step_ns
    assert simulate(program(shape, faster, exchanges, latency)).step_ns <= slow


@settings(max_examples=40)
@given(shapes, twelve, twelve, st.integers(0, 200), st.floats(1.0, 4.0))
def test_a_faster_link_never_makes_the_step_slower(
    shape: int, durations: list[int], exchanges: list[int], latency: int, rate: float
) -> None:
    slow = simulate(program(shape, durations, exchanges, latency)).step_ns
    fast = program(shape, durations, exchanges, round(latency / rate), rate)
    assert simulate(fast).step_ns <= slow


@settings(max_examples=40)
@given(shapes, twelve, twelve, st.integers(0, 200))
def test_every_nanosecond_of_every_role_has_one_name(
    shape: int, durations: list[int], exchanges: list[int], latency: int
) -> None:
    trace = simulate(program(shape, durations, exchanges, latency))
    for row in trace.breakdown_ns:
        assert sum(row.values()) == trace.step_ns
        assert min(row.values()) >= 0


@settings(max_examples=40)
@given(shapes, twelve, twelve, st.integers(0, 200))
def test_operations_of_one_stream_never_overlap(
    shape: int, durations: list[int], exchanges: list[int], latency: int
) -> None:
    spans = simulate(program(shape, durations, exchanges, latency)).spans
    same = (spans.role[1:] == spans.role[:-1]) & (spans.stream[1:] == spans.stream[:-1])
    assert (spans.start[1:] >= spans.end[:-1])[same].all()


@pytest.mark.parametrize(
    "scenario", [moe(4, 4, 2, 8), moe(4, 2, 1, 16), dense(2, 4, 1, 4), dense(2, 2, 2, 4)]
)
@pytest.mark.parametrize("ranks", ["folded", "all"])
def test_every_byte_sent_is_received(scenario: Scenario, ranks: Literal["folded", "all"]) -> None:
    """Messages leave one role's port and enter its neighbour's, one of boundary size per crossing;
    what a collective sends through a role's port, it receives through the same role's."""
    made = lower(plan(scenario), ranks)
    graph = unroll(made, made.microbatches)
    crossings = {"send_forward": 0, "send_backward": 0}
    paths = [*graph.bundles.paths]
    for op, bundle in enumerate(graph.bundle.tolist()):
        index, name = int(graph.role[op]), graph.names[graph.name[op]]
        role = made.roles[index]
        for size, path in graph.bundles.flows[bundle] if bundle >= 0 else ():
            own, peer, links = made.wiring.ports[index], made.wiring.ports[index], paths[path][0]
            if name in crossings:
                crossings[name] += 1
                step = 1 if name == "send_forward" else -1
                peer = made.wiring.ports[role.peers[(role.stage + step) % made.stages]]
                assert size == made.message.bytes
            routes = (own.nvlink_out, peer.nvlink_in), (own.nic_out, peer.nic_in)
            assert links in [tuple(link for link, _ in out + into) for out, into in routes]
    chunks = made.stages * made.chunks_per_stage
    columns = len(made.roles) // made.stages
    expected = (chunks - 1) * made.microbatches * columns
    assert crossings == {"send_forward": expected, "send_backward": expected}


@cache
def apart(tensor: int) -> tuple[Scenario, Program]:
    """Two stages on two nodes, whose gradients are reduced after the last pass."""
    found = dense(2, 2, 1, tensor, "parallel.overlap_grad_reduce=false")
    return found, lower(plan(found))


@settings(max_examples=15)
@given(st.sampled_from([2, 8]), st.floats(1.0, 4.0), st.sampled_from(["nic", "nvlink"]))
def test_a_faster_link_of_a_real_layout_never_makes_the_step_slower(
    tensor: int, times: float, link: str
) -> None:
    """Two stages under 1F1B on two nodes: messages alone on the NICs, tensor ranks on NVLink; no
    gradient beside them."""
    base, slow = apart(tensor)
    cluster, own = base.cluster, getattr(base.cluster.node, link)
    wide = own.model_copy(update={"bandwidth": own.bandwidth * times})
    node = cluster.node.model_copy(update={link: wide})
    faster = base.model_copy(update={"cluster": cluster.model_copy(update={"node": node})})
    fast = lower(plan(faster))
    assert not play(unroll(slow, slow.microbatches), slow).shared
    assert simulate(fast).step_ns <= simulate(slow).step_ns


def test_a_step_is_never_faster_than_its_kernels_on_the_busiest_stage() -> None:
    resolved = plan(moe(4, 4, 2, 8))
    made = lower(resolved)
    trace = simulate(made)
    busiest = max(
        sum(
            step.duration_ns
            for (kind, chunk), template in made.passes.items()
            if kind in "FB" and chunk % made.stages == stage
            for step in template
            if step.stream == 0
        )
        for stage in range(made.stages)
    )
    assert trace.step_ns > busiest * made.microbatches


def test_a_faster_nic_and_a_faster_gpu_make_a_real_step_faster() -> None:
    base = simulate(lower(plan(moe(8, 4, 2, 16)))).step_ns
    for faster in ("cluster.node.nic.bandwidth=800Gbps", "calibration.gemm=0.9"):
        assert simulate(lower(plan(moe(8, 4, 2, 16, faster)))).step_ns < base


def test_the_template_of_one_pass_is_its_kernels_and_exchanges_in_order() -> None:
    """One MoE layer: attention and router, dispatch, beside it the shared expert, experts, combine,
    the rest."""
    made = plan(moe(8, 4, 2, 16))
    chunk = next(one.index for one in made.chunks if [x.kind for x in one.layers] == ["moe"])
    template = lower(made).passes["F", chunk]
    assert [(step.name, step.after) for step in template] == [
        ("forward", ()),
        ("dispatch", (0,)),
        ("forward", (0,)),
        ("forward", (1, 2)),
        ("combine", (3,)),
        ("forward", (4,)),
    ]
