"""Data centres with a slow link between them: a pod is a site.

Inside a site a path crosses three switches, of a network at full bisection. Between sites it also
crosses a gateway of each, and takes the distance; the NICs of a site share its way to the others,
1 / `oversubscription` of their rate. Left out: what a protocol needs for the longer way (windows,
forward error correction, losses), which is `efficiency`'s to say, and sites of different sizes.
Source of one such run: Gemini Team 2023, arXiv:2312.11805, section 3 (data-parallel replicas over
data centres); no row of published measurements has one, so that rates and distances are the
planner's.
"""

from __future__ import annotations

from typing import ClassVar, final

from twin.network.topology.base import Topology
from twin.spec.cluster import FabricSpec

_INSIDE = 3
"""Switches between two nodes of a site: leaf, spine, leaf."""


@final
class Sites(Topology):
    """A gateway per site; all gateways meet."""

    kind: ClassVar[str] = "sites"
    rails: ClassVar[bool] = False

    def switches(self, fabric: FabricSpec, nodes: int) -> int:
        """Of a site's own network, and of another site a gateway at each end."""
        if nodes == 1:
            return 0
        return _INSIDE if nodes <= fabric.nodes_per_leaf else _INSIDE + 2
