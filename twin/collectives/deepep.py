"""Expert all-to-all that sends a token once per node, as DeepEP does.

Dispatch: a token goes over RDMA to each other node that holds at least one of its experts, to the
GPU on the same rail, which passes it over NVLink to each GPU there that holds one; inside its own
node it goes over NVLink at once. Combine is the mirror image: sums over a node's GPUs come back
once. Both stages work on slices, so that the fullest link decides. A copy for the GPU of the same
rail needs no NVLink; the GPU writes it itself, as it does its own (`own_bytes`). Source:
DeepSeek-AI, "DeepSeek-V3 technical report", section 3.2.2, and DeepEP's normal kernels. What its
README prints is logical: bytes that also count the own node (RDMA) or the own GPU (NVLink), over
the same time.

SMs do the copying, so that few of them pass on less than NVLink carries: 18 GB/s each, of rows that
arrive, fitted on H100 with 12 SMs (scenarios/published/deepep-others.yaml). B200 with 16 to 48 is
met within 25 % by it.
"""

from __future__ import annotations

from twin.collectives.base import Traffic, started
from twin.collectives.spread import Spread
from twin.network.links import LinkClass, capacity, far_share
from twin.network.placement import Placement
from twin.spec.cluster import ClusterSpec


def deepep(payload: float, spread: Spread, placement: Placement) -> Traffic:
    """The traffic of one dispatch or combine on one rank, start included.

    `payload` is what plain all-to-all takes: bytes of all top-k copies of the rank's tokens, those
    for itself included. Where experts are unequally loaded it is that of the fullest node and rank.
    """
    if placement.size == 1:
        return Traffic()
    token, rows = payload / spread.top_k, arriving(payload, spread)
    local, nodes = placement.per_node, placement.nodes
    flow = Traffic(
        nvlink_bytes=rows * (local - 1) / local,
        nic_bytes=token * spread.nodes * spread.fullest_node * (nodes - 1) / nodes,
        nvlink_hops=int(local > 1),
        nic_hops=int(nodes > 1),
        own_bytes=rows / local,
    )
    return started(flow, far_share("all_to_all", placement))


def arriving(payload: float, spread: Spread) -> float:
    """Bytes of rows that reach the fullest rank, its own among them."""
    return payload / spread.top_k * spread.ranks * spread.fullest_rank


def sm_lag(rows: float, rate: float | None, flow: Traffic, cluster: ClusterSpec) -> float:
    """Seconds by which SMs that pass on `rate` bytes per second are slower than the links."""
    if rate is None or not rows:
        return 0.0
    loads: dict[LinkClass, float] = {"nvlink": flow.nvlink_bytes, "nic": flow.nic_bytes}
    links = max(load / (capacity(cluster, link) or load) for link, load in loads.items() if load)
    return max(0.0, rows / rate - links)
