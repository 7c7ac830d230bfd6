"""Which rank sits where: the rank grid of a scenario, and how each kind of group falls on nodes.

Ranks are numbered by a mixed-radix count over the axes of `parallel.order`, the first axis fastest,
and fill nodes in that order (Megatron-LM's rank order, megatron/core/parallel_state.py). Expert
ranks are taken out of the data axis, so in the order `data` stands for what remains: the replicas
of each expert. Group members are found from real coordinates, not from a formula per order, so any
order works. Of a large cluster only as many ranks are drawn as show every way in which groups meet
nodes (`_essential`). Left out: failed or spare nodes, and nodes of different kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import gcd, isqrt, prod

import numpy as np
from numpy.typing import NDArray

from twin.network.placement import Placement
from twin.plan.types import Mesh
from twin.scenario import Scenario

GROUP_AXES: dict[str, tuple[str, ...]] = {
    "tensor": ("tensor",),
    "expert": ("expert",),
    "data": ("expert", "data"),
    "expert_data": ("tensor", "data"),
}
"""The axes over which the members of each kind of group differ: dense weights are replicated over
both data axes; experts, which tensor ranks do not cut, over tensor ranks and what expert ranks
leave of the data axis."""


def lay_out(scenario: Scenario) -> Mesh:
    """The rank grid: data parallelism is GPUs / (tensor x pipeline). Degrees that do not divide are
    `feasibility`'s to report; here they are rounded down."""
    parallel = scenario.parallel
    return Mesh(
        tensor=parallel.tensor,
        expert=parallel.expert,
        data=scenario.cluster.gpus // (parallel.tensor * parallel.pipeline),
        pipeline=parallel.pipeline,
        gpus_per_node=scenario.cluster.node.gpus,
        order=parallel.order,
    )


def members_per_node(mesh: Mesh, group: str) -> tuple[int, ...]:
    """How many members of one group share a node: every count that occurs over all groups of this
    kind, ascending. One count means that the groups sit evenly."""
    nodes = _groups(mesh.order, _essential(mesh), GROUP_AXES[group]) // mesh.gpus_per_node
    # Members are in the order of their ranks, so those on one node are neighbours in their row.
    first = np.ones(nodes.shape, bool)
    first[:, 1:] = nodes[:, 1:] != nodes[:, :-1]
    counts = np.diff(np.flatnonzero(first), append=nodes.size)
    return tuple(int(count) for count in np.unique(counts))


def placements(mesh: Mesh) -> dict[str, Placement]:
    """The placement of every kind of group, for a mesh whose groups sit evenly; `pipeline` is a
    pair of neighbours."""
    found = {
        group: Placement(size=_size(mesh, axes), per_node=members_per_node(mesh, group)[0])
        for group, axes in GROUP_AXES.items()
    }
    if mesh.pipeline == 1:
        return found | {"pipeline": Placement(size=1, per_node=1)}
    return found | {"pipeline": Placement(size=2, per_node=2 if all(neighbours_share(mesh)) else 1)}


def neighbours_share(mesh: Mesh) -> tuple[bool, ...]:
    """For each stage and the next (from the last to the first, where interleaving sends, too):
    whether all ranks share their node with their neighbour."""
    sizes = _essential(mesh) | {"pipeline": mesh.pipeline}
    stages = _groups(mesh.order, sizes, ("pipeline",)) // mesh.gpus_per_node
    shared = stages == np.roll(stages, -1, axis=1)
    return tuple(bool(pair) for pair in shared.all(axis=0))


def nearest_even(mesh: Mesh, axis: str, group: str) -> tuple[int, ...]:
    """The degrees of `axis` (`tensor`, `expert` or `pipeline`) next below and above the present one
    with which the groups of this kind would sit evenly; empty when there is none."""

    def even(degree: int) -> bool:
        candidate = _with_degree(mesh, axis, degree)
        return candidate is not None and len(members_per_node(candidate, group)) == 1

    return next_to(degrees(mesh)[axis], filter(even, divisors(mesh.ranks)))


def divisors(number: int) -> list[int]:
    """All divisors of a positive number, ascending."""
    small = [divisor for divisor in range(1, isqrt(number) + 1) if number % divisor == 0]
    return sorted({*small, *(number // divisor for divisor in small)})


def next_to(wanted: int, candidates: Iterable[int]) -> tuple[int, ...]:
    """The candidates next below and next above what was wanted, where there are such; candidates
    ascend."""
    below: tuple[int, ...] = ()
    for candidate in candidates:
        if candidate > wanted:
            return (*below, candidate)
        below = (candidate,) if candidate < wanted else below
    return below


def _with_degree(mesh: Mesh, axis: str, degree: int) -> Mesh | None:
    """The mesh with another degree on one axis and as many ranks, or None when the degrees do not
    divide."""
    if axis == "expert":
        return replace(mesh, expert=degree) if mesh.data % degree == 0 else None
    rest = mesh.pipeline if axis == "tensor" else mesh.tensor
    if mesh.ranks % (degree * rest):
        return None
    data = mesh.ranks // (degree * rest)
    if data % mesh.expert:
        return None
    if axis == "tensor":
        return replace(mesh, tensor=degree, data=data)
    return replace(mesh, pipeline=degree, data=data)


def degrees(mesh: Mesh) -> dict[str, int]:
    """The degree of every axis of the rank order; `data` is what the expert ranks leave of it."""
    return {
        "tensor": mesh.tensor,
        "context": 1,
        "expert": mesh.expert,
        "data": mesh.expert_data,
        "pipeline": mesh.pipeline,
    }


def _size(mesh: Mesh, axes: tuple[str, ...]) -> int:
    sizes = degrees(mesh)
    return prod(sizes[axis] for axis in axes)


def _essential(mesh: Mesh) -> dict[str, int]:
    """Degrees of the smallest grid in which groups meet nodes in the same ways as in the mesh.

    Along an axis whose neighbours are n ranks apart, the position within nodes of g GPUs repeats
    after q = g / gcd(n, g) steps. A degree of 2 q or more may therefore lose whole multiples of q:
    every rank keeps its position within a node, here and on slower axes, and what is left is wider
    than a node, so that nothing comes to share a node that did not.
    """
    apart, essential = 1, degrees(mesh)
    for axis in mesh.order:
        repeats = mesh.gpus_per_node // gcd(apart, mesh.gpus_per_node)
        size = essential[axis]
        essential[axis] = size if size < 3 * repeats else 2 * repeats + size % repeats
        apart *= essential[axis]
    return essential


def _groups(
    order: tuple[str, ...], sizes: Mapping[str, int], axes: tuple[str, ...]
) -> NDArray[np.int64]:
    """Ranks of a grid as one row per group, ascending: its members are the ranks that differ only
    on `axes`."""
    slow_to_fast = order[::-1]
    shape = [sizes[axis] for axis in slow_to_fast]
    inner = [index for index, axis in enumerate(slow_to_fast) if axis in axes]
    outer = [index for index, axis in enumerate(slow_to_fast) if axis not in axes]
    grid = np.arange(prod(shape)).reshape(shape)
    return grid.transpose(outer + inner).reshape(-1, prod(sizes[axis] for axis in axes))
