"""Who uses the network: bytes add up, rates are those of nccl-tests, shares are shares."""

import numpy as np
import pytest

from tests.engine.scenarios import moe
from tests.reports.runs import RUNS, played
from twin.arch.ops import Exchange
from twin.collectives.traffic import traffic
from twin.engine import lower, plan, simulate
from twin.engine.program import COMPUTE, SEND_BACKWARD, SEND_FORWARD
from twin.reports.network_map import MOST_GPUS, MOST_NODES, first_groups, network_map
from twin.reports.network_use import network_use
from twin.reports.op_totals import transfers


def by_name(name):
    """The collectives of a run by name."""
    planned, trace, _ = played(name)
    return {one.name: one for one in network_use(planned, lower(planned), trace).collectives}


@pytest.mark.parametrize("name", RUNS)
def test_bytes_of_all_calls_are_those_of_the_links(name):
    """Beside what the trace does not tell apart by name (dense and expert gradients), and the
    micro-batches that were not played."""
    planned, trace, _ = played(name)
    use = network_use(planned, lower(planned), trace)
    mixed = [one for one in use.collectives if " and " in one.group]
    for key in ("nvlink", "nic"):
        load = use.link(key)
        assert load is not None
        sent = sum(one.calls * getattr(one, f"{key}_bytes") for one in use.collectives)
        slack = sum(one.calls * getattr(one, f"{key}_bytes") for one in mixed)
        assert sent == pytest.approx(load.bytes, rel=0.01, abs=slack)


@pytest.mark.parametrize("name", RUNS)
def test_no_call_is_faster_than_alone_and_every_share_is_one(name):
    planned, trace, _ = played(name)
    use = network_use(planned, lower(planned), trace)
    for one in use.collectives:
        assert 0 <= one.exposed <= 1 + 1e-9
        if " and " not in one.group:
            assert one.seconds >= one.alone_seconds * (1 - 1e-3) - 2e-9
    assert all(0 <= link.use <= 1 for link in use.links)


def test_the_payload_of_an_all_to_all_is_what_the_layer_says():
    planned, _, _ = played("1f1b")
    items = {
        item.name: item
        for chunk in planned.chunks
        for layer in chunk.layers
        for item in layer.items
        if isinstance(item, Exchange)
    }
    found = by_name("1f1b")["dispatch"]
    assert found.payload == items["dispatch"].bytes
    flow = traffic("all_to_all", items["dispatch"].bytes, planned.placements["expert"])
    assert (found.nvlink_bytes, found.nic_bytes) == (flow.nvlink_bytes, flow.nic_bytes)
    assert found.members == 8


def test_rates_are_those_of_nccl_tests():
    """busbw = algbw x (n - 1) / n for all-to-all; twice that for all-reduce."""
    one = by_name("1f1b")["dispatch"]
    assert one.payload is not None
    assert one.algbw == pytest.approx(one.payload / one.seconds)
    assert one.busbw == pytest.approx(one.payload / one.seconds * 7 / 8)
    dense = {name: one for name, one in by_name("zero3").items() if "reduce" in name}
    some = next(one for name, one in dense.items() if name.startswith("attention_reduce"))
    assert some.members == 2
    assert some.algbw is not None
    assert some.busbw == pytest.approx(some.algbw * 2 * (2 - 1) / 2)


def test_a_layers_collectives_run_once_per_layer_micro_batch_and_direction():
    planned, trace, _ = played("1f1b")
    found = by_name("1f1b")["dispatch"]
    moe_layers = sum(layer.kind == "moe" for chunk in planned.chunks for layer in chunk.layers)
    assert found.calls == 2 * moe_layers * planned.microbatches / planned.mesh.pipeline
    assert trace.microbatches == planned.microbatches


def test_calls_that_were_not_played_are_counted():
    planned, trace, _ = played("long")
    assert trace.repeats > 1
    found = by_name("long")["dispatch"]
    moe_layers = sum(layer.kind == "moe" for chunk in planned.chunks for layer in chunk.layers)
    assert found.calls == pytest.approx(
        2 * moe_layers * planned.microbatches / planned.mesh.pipeline
    )


def test_pairs_hide_more_of_an_all_to_all_than_a_pass_alone():
    """Alone, a pass has at most its shared experts to put beside it."""
    assert by_name("k2")["dispatch"].exposed < 0.8 * by_name("1f1b")["dispatch"].exposed
    assert by_name("k2")["combine"].exposed < 0.8 * by_name("1f1b")["combine"].exposed


@pytest.mark.parametrize("name", RUNS)
def test_a_link_is_in_use_at_least_as_long_as_its_bytes_take_at_full_rate(name):
    planned, trace, _ = played(name)
    for link in network_use(planned, lower(planned), trace).links:
        assert link.use * (1 - 1e-3) <= link.busy <= 1
        if link.rate is not None:
            assert link.rate <= link.capacity * (1 + 1e-3)
            assert link.rate * link.busy * trace.step_ns / 1e9 == pytest.approx(link.bytes)


def test_the_time_in_use_agrees_with_counting_instants():
    """Of the NIC of a stage under 1F1B: all-to-all stays on the node, so only messages cross."""
    planned, trace, _ = played("1f1b")
    spans, streams = trace.spans, (SEND_FORWARD, SEND_BACKWARD)
    grid = np.linspace(0, trace.step_ns, 100_001)
    shares = []
    for role in range(len(trace.roles)):
        own = (spans.role == role) & np.isin(spans.stream, streams)
        begins, ends = np.sort(spans.start[own]), np.sort(spans.end[own])
        under_way = np.searchsorted(begins, grid, "right") > np.searchsorted(ends, grid, "right")
        shares.append(under_way.mean())
    nic = network_use(planned, lower(planned), trace).link("nic")
    assert nic is not None
    closing = sum(
        one.total_seconds
        for one in network_use(planned, lower(planned), trace).collectives
        if one.axis == "data"
    )
    assert nic.busy == pytest.approx(np.mean(shares), abs=1e-3 + 1e9 * closing / trace.step_ns)


def test_a_window_that_repeats_counts_as_often_as_it_does():
    """Twice the micro-batches are twice the bytes and twice the time in use, the closing aside."""
    found = {}
    for name in ("long", "1f1b"):
        planned, trace, _ = played(name)
        nic = network_use(planned, lower(planned), trace).link("nic")
        assert nic is not None
        found[name] = nic.busy * trace.step_ns / planned.microbatches
    assert trace.repeats == 1
    assert played("long")[1].repeats > 1
    assert found["long"] == pytest.approx(found["1f1b"], rel=0.05)


def test_what_crosses_pcie_is_what_the_nic_moves_and_what_the_host_copies():
    for offload in ("[]", "[activations]"):
        planned = plan(moe(4, 4, 1, 8, f"memory.offload={offload}"))
        trace = simulate(lower(planned))
        use = network_use(planned, lower(planned), trace)
        pcie, nic = use.link("pcie"), use.link("nic")
        assert pcie is not None
        assert nic is not None
        assert pcie.parts["NIC traffic"] == pytest.approx(nic.bytes)
        assert sum(pcie.parts.values()) == pytest.approx(pcie.bytes)
        assert bool(pcie.parts["host copies"]) == (offload != "[]")
        copied = transfers(lower(planned), trace, "exposed_offload").bytes.get("host", 0.0)
        assert copied == pytest.approx(2 * pcie.parts["host copies"]), "out and in, half each"


def test_the_exposed_share_agrees_with_counting_every_nanosecond():
    """Against a plain count over a grid of instants."""
    planned, trace, _ = played("k2")
    spans = trace.spans
    rows = (spans.role == 1) & (spans.name == trace.names.index("dispatch"))
    kernels = (spans.role == 1) & (spans.stream == COMPUTE)
    grid = np.linspace(0, spans.end.max(), 200_001)

    def covered(chosen):
        begins, ends = np.sort(spans.start[chosen]), np.sort(spans.end[chosen])
        return np.searchsorted(begins, grid, "right") > np.searchsorted(ends, grid, "right")

    sent, busy = covered(rows), covered(kernels)
    share = (sent & ~busy).sum() / sent.sum()
    assert by_name("k2")["dispatch"].exposed == pytest.approx(share, abs=0.1)
    assert planned.mesh.pipeline == len(trace.roles)


@pytest.mark.parametrize("name", RUNS)
def test_a_drawing_is_bounded_and_whole(name):
    planned, _, _ = played(name)
    drawn = network_map(planned)
    gpus = [vertex for vertex in drawn.vertices if vertex.role == "gpu"]
    assert len(drawn.nodes) <= MOST_NODES
    assert len(gpus) <= MOST_NODES * MOST_GPUS
    assert 0 in drawn.nodes
    assert len({(vertex.x, vertex.level) for vertex in drawn.vertices}) == len(drawn.vertices)
    joined = {end for edge in drawn.edges for end in (edge.a, edge.b)}
    assert joined == set(range(len(drawn.vertices)))


def test_every_group_of_the_first_rank_reaches_a_drawn_gpu_beside_it():
    planned, _, _ = played("1f1b")
    drawn = network_map(planned)
    assert drawn.groups
    assert all(len(members) >= 2 for members in drawn.groups.values())


def test_groups_are_those_that_differ_on_their_axes_only():
    """32 ranks in 4 stages of 8: an expert group of 8 is one node, the data group the same ranks,
    the pipeline every eighth."""
    planned, _, _ = played("1f1b")
    groups = first_groups(planned.mesh)
    assert groups == {
        "data": tuple(range(8)),
        "expert": tuple(range(8)),
        "pipeline": (0, 8, 16, 24),
    }
