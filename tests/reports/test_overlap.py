"""Window and demand of a layer: against its operations, its bytes, and the links' rates."""

import json

import pytest

from tests.engine.scenarios import dense, moe
from twin.arch.ops import Exchange, Op
from twin.collectives.traffic import traffic
from twin.engine import plan
from twin.engine.cost_model import CostModel
from twin.reports.overlap import overlap, sentence

K2 = "{kind: interleaved_1f1b, extra_warmup: 1, overlap_all_to_all: true, defer_weight_grad: true}"
PLAIN = (
    "memory={recompute: [], fp8_store: [], offload: []}",
    "calibration.dispatch=0s",
    "parallel.dispatcher=alltoall",
)


def layers(*more, expert=16):
    """The overlap of each kind of layer of a small plan, by kind, and the plan."""
    planned = plan(moe(8, 4, 2, expert, *PLAIN, *more))
    return {one.kind: one for one in overlap(planned)}, planned


def kernels(planned, kind, part):
    """Seconds of the kernels of one part of a layer, op by op."""
    costs = CostModel.of(planned)
    layer = next(one for c in planned.chunks for one in c.layers if one.kind == kind)
    return sum(costs.kernels(op, part).seconds for op in layer.items if isinstance(op, Op))


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_the_kernels_are_those_of_the_layer_s_operations(kind):
    found, planned = layers()
    window = found[kind].window
    for size, part in (
        (window.forward, "forward"),
        (window.backward_input, "backward"),
        (window.backward_weight, "weight"),
    ):
        assert size == pytest.approx(kernels(planned, kind, part), abs=1e-7)


def test_the_demand_is_the_bytes_of_dispatch_and_combine_over_the_ports():
    found, planned = layers()
    layer = next(one for c in planned.chunks for one in c.layers if one.kind == "moe")
    costs = CostModel.of(planned)
    exchanged = [item for item in layer.items if isinstance(item, Exchange) and not item.asks]
    assert [item.name for item in exchanged] == ["dispatch", "combine"]
    flows = [traffic("all_to_all", item.bytes, planned.placements["expert"]) for item in exchanged]
    nic = sum(flow.nic_bytes for flow in flows) / costs.alone["nic"] / 1e9
    nvlink = sum(flow.nvlink_bytes for flow in flows) / costs.alone["nvlink"] / 1e9
    for demand in (found["moe"].forward, found["moe"].backward):
        assert demand.links["nic"] == pytest.approx(nic, rel=1e-6)
        assert demand.links["nvlink"] == pytest.approx(nvlink, rel=1e-6)
        assert demand.alone > max(nic, nvlink), "latency comes on top"


def test_what_is_recomputed_asks_again():
    kept, _ = layers()
    again, _ = layers("memory.recompute=[full]")
    window = again["moe"].window
    assert window.recompute == pytest.approx(kept["moe"].window.forward, rel=0.05)
    assert again["moe"].backward.alone > 1.4 * kept["moe"].backward.alone


def test_a_dense_layer_asks_nothing():
    found, _ = layers()
    assert found["dense"].demand.alone == 0
    assert found["dense"].to_json()["ratio"] == 0


def test_a_pair_hides_under_both_passes_but_not_under_what_comes_after_it():
    paired, _ = layers(f"parallel.schedule={K2}")
    window = paired["moe"].window
    assert window.hiding == pytest.approx(window.total - window.backward_weight)
    whole, _ = layers(f"parallel.schedule={K2.replace('true}', 'false}')}")
    assert whole["moe"].window.hiding == pytest.approx(whole["moe"].window.total)


def test_without_pairs_only_a_pass_s_own_kernels_hide_its_all_to_all():
    """At most the shared experts, forward and backward."""
    found, planned = layers()
    costs = CostModel.of(planned)
    layer = next(one for c in planned.chunks for one in c.layers if one.kind == "moe")
    shared = sum(
        costs.kernels(op, part).seconds
        for op in layer.items
        if isinstance(op, Op) and op.name.startswith("shared")
        for part in ("forward", "backward", "weight")
    )
    assert 0 <= found["moe"].window.hiding <= shared + 1e-6


def test_layers_are_counted_once_also_where_stages_hold_copies():
    for schedule in ("1f1b", "dualpipe"):
        planned = plan(moe(4, 4, 1, 8, f"parallel.schedule={schedule}"))
        counts = {one.kind: one.layers for one in overlap(planned)}
        assert counts == {"dense": 1, "moe": 8}


def test_the_document_names_every_second_and_reads_back():
    found, _ = layers()
    document = json.loads(json.dumps([one.to_json() for one in found.values()]))
    (moe_layer,) = (one for one in document if one["kind"] == "moe")
    assert set(moe_layer["demand"]["forward"]) == {"nvlink_seconds", "nic_seconds", "alone_seconds"}
    assert set(moe_layer["window"]) == {
        "forward_seconds",
        "recompute_seconds",
        "backward_input_seconds",
        "backward_weight_seconds",
        "hiding_seconds",
    }


def test_the_sentence_says_whether_it_can_hide():
    paired, _ = layers(f"parallel.schedule={K2}")
    said = sentence(tuple(paired.values()))
    assert ("fits under" in said) == ((paired["moe"].ratio or 0) <= 1)
    assert "nothing to hide" in sentence(overlap(plan(dense(2, 2, 1, 2))))
