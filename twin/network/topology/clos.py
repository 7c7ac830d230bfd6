"""A Clos of two levels without rails: all NICs of a rack's nodes go to the rack's leaf switch, and
every leaf to every spine.

A pod is one rack, so that all GPUs in a rack talk through one switch, whatever their index, and
everything else goes through leaf, spine, leaf. Racks are small (a switch has ports for a few nodes
of eight NICs), so much more of the traffic crosses spines than in a rail-optimised tree. Source:
Gangidi et al. 2024, "RDMA over Ethernet for distributed AI training at Meta scale", SIGCOMM,
section 3. Left out: a third level (Meta's aggregation between zones, oversubscribed 1:7), and
failed links.
"""

from __future__ import annotations

from typing import ClassVar, final

from twin.network.topology.base import Topology


@final
class Clos(Topology):
    """One leaf per rack; all leaves meet in the spines."""

    kind: ClassVar[str] = "clos"
    rails: ClassVar[bool] = False
