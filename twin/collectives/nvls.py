"""Collectives that the NVSwitch helps with (NVLink SHARP): it adds up what it reads from all GPUs,
and writes what one GPU sends to all of them.

Each GPU owns 1/n of the payload S of its node. To reduce its share, it reads the sum from the
switch, which reads the share of every GPU: so every GPU sends all of S once and receives S/n. To
gather, it writes its share to the switch, which writes it to every GPU: it sends S/n and receives
S. An all-reduce does both, with 1 + 1/n payloads per port and direction where a ring needs
2 (n - 1)/n; n = 8: 1.125 against 1.75. Reduce-scatter and all-gather alone gain no bytes.
Across nodes the reduced shares go through double binary trees, one pair per rail (NCCL's NVLSTree).
Source of the port's bytes: PTX ISA, `multimem.ld_reduce` and `multimem.st`; the GPU's own share
takes the same way.
"""

from __future__ import annotations

from typing import Final

from twin.collectives import tree
from twin.collectives.base import Traffic
from twin.network.placement import Placement

PHASE_HOPS: Final = 15
"""What reading sums or writing to all costs beside the bytes, in NVLink hops: all ranks wait for
one another at both ends. Fitted on all-reduces of 4 and 8 H100 (scenarios/published/nccl-h100.yaml,
4 MiB to 512 MiB), which NCCL does by rings where those are faster: the mean error of the faster of
both is 10 % with 1 and 3 % with 15."""
PHASE_OWN: Final = 0.3
"""What a phase costs beside the bytes it sends, in payloads: it counts as `Traffic.own_bytes`,
although no share is behind it, since reading a sum keeps a port from what plain stores reach.
Fitted there, too, as its product with `node.nvlink.own_share`: without it large all-reduces of 8
H100 would be 15 % too fast."""


def all_reduce(payload: float, placement: Placement) -> Traffic:
    """Every rank ends with the sum of `payload` (bytes per rank)."""
    local, nodes = placement.per_node, placement.nodes
    across = tree.all_reduce(payload / local, Placement(nodes, 1)) if nodes > 1 else Traffic()
    return Traffic(
        nvlink_bytes=payload * (1 + 1 / local),
        nic_bytes=across.nic_bytes,
        nvlink_hops=2 * PHASE_HOPS,
        nic_hops=across.nic_hops,
        own_bytes=2 * PHASE_OWN * payload,
    )


def reduce_scatter(payload: float, placement: Placement) -> Traffic:
    """Every rank of one node ends with 1/n of the sum of `payload` (bytes, unreduced, per rank)."""
    del placement
    return Traffic(nvlink_bytes=payload, nvlink_hops=PHASE_HOPS, own_bytes=PHASE_OWN * payload)


def all_gather(payload: float, placement: Placement) -> Traffic:
    """Every rank of one node ends with the whole `payload` (bytes, gathered)."""
    del placement
    return Traffic(nvlink_bytes=payload, nvlink_hops=PHASE_HOPS, own_bytes=PHASE_OWN * payload)
