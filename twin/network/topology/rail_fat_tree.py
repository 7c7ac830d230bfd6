"""A rail-optimised fat tree of two levels: NIC r of every node goes to leaf r of its pod, and every
leaf to every spine.

A pod is as many nodes as a leaf has ports for. GPUs of equal index share a rail, so that neighbours
in a rail talk through one leaf inside a pod, and through leaf, spine, leaf across pods. Sources:
DeepSeek-AI, "Insights into DeepSeek-V3", ISCA 2025, section 5.1; NVIDIA DGX SuperPOD reference
architecture (A100), compute fabric. Left out: a third level (core switches), needed beyond spine
ports / rails pods, and failed links.
"""

from __future__ import annotations

from typing import ClassVar, final

from twin.network.topology.base import Topology


@final
class RailFatTree(Topology):
    """One leaf per rail and pod; all leaves meet in the spines."""

    kind: ClassVar[str] = "rail_fat_tree"
    rails: ClassVar[bool] = True
