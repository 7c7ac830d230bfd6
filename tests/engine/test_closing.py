"""How a step closes where nothing overlaps: gradients, norm, update, weights, one after another."""

from __future__ import annotations

import pytest

from tests.engine.scenarios import dense
from twin.engine import lower, plan, simulate

pytestmark = pytest.mark.usefixtures("each_player")

APART = "parallel.overlap_grad_reduce=false"


@pytest.mark.parametrize("nic", [100, 50])
def test_collectives_of_the_optimizer_take_what_the_nodes_nics_need(nic: int) -> None:
    """16 data ranks on 2 nodes. Rings enter and leave each node once, by another NIC each: a NIC
    carries 1/8 of the 15/16 of the payload that each rank sends. Beside it a rank copies its own
    share, and 15 hops follow each other."""
    made = plan(
        dense(2, 1, 1, 1, "parallel.zero=1", APART, "train.global_batch=32seq",
              f"cluster.node.nic.bandwidth={nic}Gbps")
    )  # fmt: skip
    cluster, weights = made.scenario.cluster, made.chunks[0].weights.total
    rate = nic * 1e9 / 8 * cluster.node.nic.efficiency * cluster.fabric.efficiency
    port = cluster.node.nvlink.bandwidth * cluster.node.nvlink.efficiency
    trace = simulate(lower(made))

    def seconds(name: str) -> tuple[float, float]:
        own = trace.spans.name == trace.names.index(name)
        return float(trace.spans.start[own].max()) / 1e9, float(trace.spans.end[own].max()) / 1e9

    for name, width in (("reduce_scatter_gradients", 4), ("all_gather_weights", 2)):
        start, end = seconds(name)
        own = cluster.node.nvlink.own_share * weights * width / 16 / port
        by_hand = weights * width * 15 / 16 / 8 / rate + own
        assert end - start == pytest.approx(by_hand, abs=15 * 5e-6)
    assert seconds("reduce_scatter_gradients")[0] >= seconds("backward")[1]
    assert seconds("optimizer")[0] >= seconds("reduce_scatter_gradients")[1]
    assert seconds("all_gather_weights")[0] >= seconds("optimizer")[1]
    assert seconds("all_gather_weights")[1] == pytest.approx(trace.step_ns / 1e9)
