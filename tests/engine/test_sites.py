"""Pipelines and replicas over data centres, and sums by the switches between nodes."""

from __future__ import annotations

import pytest

from tests.engine.scenarios import dense, moe
from tests.network.clusters import cluster
from twin.collectives.traffic import chosen, far_hops, traffic
from twin.engine import lower, plan, simulate
from twin.engine.cost_model import CostModel
from twin.errors import TwinError
from twin.network.links import latency
from twin.network.placement import Placement
from twin.planning.types import Plan

SITES = "cluster.fabric.kind=sites"
FAR = "cluster.fabric.distance=5ms"
HALVES = "cluster.fabric.nodes_per_leaf=2"


def step_ns(*more: str, batch: int = 4) -> int:
    """Four nodes, a stage each, of eight tensor ranks."""
    return simulate(
        lower(plan(dense(4, 4, 1, 8, SITES, HALVES, f"train.global_batch={batch}seq", *more)))
    ).step_ns


def test_one_micro_batch_crosses_twice_and_the_norm_twice() -> None:
    """Forward and backward once each between the second and the third stage; the gradient norm up
    and down."""
    assert step_ns(FAR, batch=1) - step_ns(batch=1) == pytest.approx(4 * 5e6, abs=2)


def test_only_the_stages_at_the_border_send_over_it() -> None:
    program = lower(plan(dense(4, 4, 1, 8, SITES, HALVES, FAR)))
    message = program.message
    near, far = (message.between(*pair) for pair in ((0, 1), (1, 2)))
    assert (near.far, far.far) == (False, True)
    assert far.latency_ns - near.latency_ns == 5_000_000
    assert message.between(2, 1) == far
    assert message.between(3, 2) == near


def test_a_pipeline_in_one_site_knows_nothing_of_others() -> None:
    whole = "cluster.fabric.nodes_per_leaf=4"
    assert step_ns(whole, FAR) == step_ns(whole)


def test_messages_share_the_way_between_sites() -> None:
    """Eight tensor ranks send at once what a narrow way carries one after another."""
    narrow = [step_ns(f"cluster.fabric.oversubscription={n}") for n in (1, 1000, 100_000)]
    assert narrow[0] < narrow[1] < narrow[2]


@pytest.mark.parametrize(("per_pod", "hops"), [(8, 0), (4, 4), (2, 7)])
def test_a_ring_goes_to_another_site_once_for_all_nodes_of_one(per_pod: int, hops: int) -> None:
    """Of eight nodes a ring of 14 hops: none between sites, in two sites every fourth, in four
    every second."""
    spec = cluster(8, kind="sites", distance="1ms")
    placement = Placement(8, 1, per_pod)
    flow = traffic("all_reduce", 1e6, placement)
    assert flow.nic_hops == 14
    assert far_hops(flow, spec, placement) == hops


def test_a_way_between_sites_has_a_gateway_at_each_end() -> None:
    spec = cluster(4, kind="sites")
    inside, across = (latency(spec, "nic", Placement(2, 1, pod)) for pod in (2, 1))
    assert (inside, across) == (pytest.approx(6e-6), pytest.approx(8e-6))


def test_switches_take_each_share_once_and_give_the_sum_once() -> None:
    """Of a payload over 4 nodes of 4 a NIC sends a quarter once; a ring 2 x 3/4 of a quarter."""
    group = Placement(16, 4, 8)
    helped, ring = (traffic("all_reduce", 8e9, group, way) for way in ("switches", "ring"))
    assert helped.nic_bytes == 2e9
    assert ring.nic_bytes == pytest.approx(8e9 * 2 * 15 / 16 / 4)
    assert helped.far_bytes == pytest.approx(2e9 / 2)
    assert helped.nic_hops == 2
    assert traffic("all_reduce", 8e9, Placement(4, 4), "switches").nic_bytes == 0
    same = traffic("all_gather", 8e9, group, "switches")
    assert same == traffic("all_gather", 8e9, group, "ring")


def test_auto_asks_switches_only_where_they_add_up() -> None:
    group, slow = Placement(16, 4, 8), cluster(4)
    adds = slow.model_copy(update={"fabric": slow.fabric.model_copy(update={"reduces": True})})
    assert chosen(slow, "auto", "all_reduce", 1e9, group).nic_bytes > 0.25e9
    assert chosen(adds, "auto", "all_reduce", 1e9, group).nic_bytes == 0.25e9


def test_switches_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(TwinError) as refused:
        plan(dense(2, 1, 1, 1, "parallel.collectives=switches"))
    assert [one.code for one in refused.value.problems] == ["TW130"]
    plan(dense(2, 1, 1, 1, "parallel.collectives=switches", "cluster.fabric.reduces=true"))


def test_groups_of_experts_may_straddle_racks() -> None:
    """Two racks of 72: of nine groups of 16 the fifth has eight ranks in each. All count so."""

    def made(gpus: int) -> Plan:
        racks = "cluster.node=gb200-nvl72", f"cluster.node.gpus={gpus}", "cluster.nodes=2"
        return plan(moe(2, 1, 1, 16, "software=null", *racks, "train.global_batch=288seq"))

    whole, straddling = made(16), made(72)
    assert whole.placements["expert"] == Placement(16, 16, 16)
    assert straddling.placements["expert"].per_node == 8
    codes = {warning.code for warning in straddling.warnings}
    assert "straddling-groups" in codes
    assert "straddling-groups" not in {warning.code for warning in whole.warnings}
    sent = [
        CostModel.of(one).collective("all_to_all", 1e9, "expert")[0] for one in (whole, straddling)
    ]
    assert sent[0].nic_bytes == 0 < sent[1].nic_bytes
