"""Jobs beside each other on one fabric: how many nodes of each are under every leaf.

A job with `a` nodes under each leaf of `n` is a job on a fabric of its own with pods of `a` nodes,
whose uplinks are as wide as those of a whole leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Literal, TypeAlias

from twin.spec.cluster import ClusterSpec

Layout: TypeAlias = Literal["interleaved", "apart"]
"""Whether each leaf has nodes of every job, in equal parts of it, or each job leaves of its own."""


def nodes_per_leaf(most: int, jobs: Sequence[int]) -> tuple[int, ...]:
    """Of jobs with so many nodes, the nodes of each under one leaf that has room for `most`, on as
    few leaves as hold them all. Raises ValueError where a leaf has no room for every job."""
    if most < len(jobs):
        raise ValueError(f"a leaf of {most} nodes has no room for {len(jobs)} jobs")
    leaves = ceil(sum(jobs) / most)
    while sum(own := [ceil(nodes / leaves) for nodes in jobs]) > most:
        leaves += 1
    return tuple(own)


def seen(cluster: ClusterSpec, own: int) -> ClusterSpec:
    """The cluster as a job sees it that has so many nodes under each leaf, while no other job
    sends."""
    fabric = cluster.fabric
    left = max(1.0, fabric.oversubscription * own / fabric.nodes_per_leaf)
    update = {"nodes_per_leaf": own, "oversubscription": left}
    return cluster.model_copy(update={"fabric": fabric.model_copy(update=update)})
