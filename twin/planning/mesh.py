"""Which rank sits where: the rank grid of a scenario, and how each kind of group falls on nodes.

Ranks are numbered by a mixed-radix count over the axes of `parallel.order`, the first axis fastest,
and fill nodes in that order (Megatron-LM's rank order, `RankGenerator` of
megatron/core/parallel_state.py). The same ranks are counted twice, in one order: for dense weights
over tensor, context, data and pipeline; for experts over expert-tensor (in tensor's place), expert,
their replicas (in data's place) and pipeline ("parallel folding", Liu et al. 2025,
arXiv:2504.14960). So expert ranks are next to each other whatever tensor and context do, and both
counts have to agree on the stage of a rank (`stages_agree`).

Group members are found from real coordinates, not from a formula per order, so any order works. Of
a large cluster only as many ranks are drawn as show every way in which groups meet nodes
(`_essential`). Left out: failed or spare nodes, and nodes of different kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import gcd, isqrt, prod
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from twin.arch.remembered import remembered
from twin.network.placement import Placement
from twin.planning.types import Mesh
from twin.scenario import Scenario

Grid = Literal["dense", "experts"]
"""The two ways in which the ranks are counted."""

GROUPS: Final[dict[str, tuple[Grid, tuple[str, ...]]]] = {
    "tensor": ("dense", ("tensor",)),
    "context": ("dense", ("context",)),
    "data": ("dense", ("context", "data")),
    "expert_tensor": ("experts", ("tensor",)),
    "expert": ("experts", ("expert",)),
    "expert_data": ("experts", ("data",)),
}
"""Kinds of groups: the grid, and the axes over which members differ. `data` are the replicas of
dense weights, which context ranks share; `expert_data` those of an expert."""

REPLICAS: Final = ("data", "expert_data")
"""Kinds of groups that hold the same weights."""
STRADDLING: Final = (*REPLICAS, "context", "expert")
"""Kinds of groups that may straddle nodes unevenly, as on an odd number of nodes."""


def lay_out(scenario: Scenario) -> Mesh:
    """The rank grid: data parallelism is GPUs / (tensor x context x pipeline). Degrees that do not
    divide are `feasibility`'s to report; here they are rounded down."""
    parallel = scenario.parallel
    gpus, stages = of_language(scenario)
    return Mesh(
        tensor=parallel.tensor,
        context=parallel.context,
        context_heads=parallel.context_heads,
        expert=parallel.expert,
        expert_tensor=parallel.expert_tensor,
        data=gpus // (parallel.tensor * parallel.context * max(1, stages)),
        pipeline=parallel.pipeline,
        gpus_per_node=scenario.cluster.node.gpus,
        order=parallel.order,
        copies=parallel.schedule.chunk_map(parallel.pipeline, parallel.virtual).copies,
    )


def of_language(scenario: Scenario) -> tuple[int, int]:
    """GPUs and stages of the language model: all but those of an encoder on GPUs of its own. That
    one counts as a stage of as many ranks as the others; what each does is that of its GPUs."""
    images = scenario.train.images
    own = (images.gpus if images else None) or 0
    return scenario.cluster.gpus - own, scenario.parallel.pipeline - bool(own)


def stages_agree(mesh: Mesh) -> bool:
    """Whether every rank is on one stage, however it is counted."""
    apart = {grid: _apart(mesh.order, degrees(mesh, grid))["pipeline"] for grid in _GRIDS}
    return mesh.pipeline == 1 or apart["dense"] == apart["experts"]


def group_numbers(mesh: Mesh) -> dict[str, NDArray[np.int64]]:
    """For each kind of group, the number of the group that a rank belongs to, as stages x ranks of
    a stage; ranks of a stage ascend."""
    stages = ranks_of_stages(mesh)
    return {kind: _numbers(mesh, kind)[stages] for kind in GROUPS}


def ranks_of_stages(mesh: Mesh) -> NDArray[np.int64]:
    """The ranks of every stage, as stages x ranks of a stage, ascending."""
    return _groups(mesh.order, degrees(mesh, "dense"), _NOT_PIPELINE)


@remembered(4096)
def members_per_node(mesh: Mesh, group: str) -> tuple[int, ...]:
    """How many members of one group share a node: every count that occurs over all groups of this
    kind, ascending. One count means that the groups sit evenly."""
    grid, axes = GROUPS[group]
    nodes = _groups(mesh.order, _essential(mesh, grid), axes) // mesh.gpus_per_node
    # Members are in the order of their ranks, so those on one node are neighbours in their row.
    first = np.ones(nodes.shape, bool)
    first[:, 1:] = nodes[:, 1:] != nodes[:, :-1]
    counts = np.diff(np.flatnonzero(first), append=nodes.size)
    return tuple(sorted(set(counts.tolist())))


def placements(mesh: Mesh, nodes_per_pod: int | None = None) -> dict[str, Placement]:
    """The placement of every kind of group; `pipeline` is a pair of neighbours. Groups that sit
    unevenly count as spread over more nodes, with as many members on each as divide all counts: on
    the node with fewest, as few NICs carry the traffic of the group. How groups sit in pods is told
    where their size is given."""
    pods = in_pods(mesh, nodes_per_pod) if nodes_per_pod else None
    found = {
        group: Placement(
            size=_size(mesh, group),
            per_node=gcd(*members_per_node(mesh, group)),
            per_pod=members_per_node(pods, group)[0] if pods else None,
        )
        for group in GROUPS
    }
    if mesh.copies > 1:
        found |= {
            group: _mirrored(mesh, group, found[group], nodes_per_pod)
            for group in ("data", "expert_data")
        }
    if mesh.context_heads > 1:
        keys = mesh.context // mesh.context_heads
        found["context_heads"], found["context_keys"] = found["context"].split(keys)
    if mesh.pipeline == 1:
        return found | {"pipeline": Placement(size=1, per_node=1)}
    shared = all(neighbours_share(mesh))
    near = nodes_per_pod is not None and all(neighbours_share(in_pods(mesh, nodes_per_pod)))
    pair = Placement(2, 2 if shared else 1, None if nodes_per_pod is None else 1 + near)
    return found | {"pipeline": pair}


def _mirrored(mesh: Mesh, group: str, half: Placement, nodes_per_pod: int | None) -> Placement:
    """The replicas of a stage with those of its mirror. Where only some mirrors share nodes, none
    is taken to."""
    per_pod = half.per_pod
    if nodes_per_pod is not None and per_pod is not None:
        per_pod *= _halves_together(in_pods(mesh, nodes_per_pod), group, per_pod)
    return Placement(
        size=half.size * mesh.copies,
        per_node=half.per_node * _halves_together(mesh, group, half.per_node),
        per_pod=per_pod,
    )


def _halves_together(mesh: Mesh, group: str, members: int) -> int:
    """2 where a node with members of a group always has as many of the mirrored stage's, else 1."""
    ranks = _groups(mesh.order, degrees(mesh, "dense"), _NOT_PIPELINE)
    numbers, middle = _numbers(mesh, group)[ranks], mesh.pipeline // 2
    numbers[middle:] = numbers[:middle][::-1]
    places = numbers * mesh.ranks + ranks // mesh.gpus_per_node
    _, counts = np.unique(places, return_counts=True)
    return 2 if (counts == 2 * members).all() else 1


def in_pods(mesh: Mesh, nodes_per_pod: int) -> Mesh:
    """The mesh as if the nodes of each pod were one."""
    return replace(mesh, gpus_per_node=mesh.gpus_per_node * nodes_per_pod)


def neighbours_share(mesh: Mesh) -> tuple[bool, ...]:
    """For each stage and the next (from the last to the first, where interleaving sends, too):
    whether all ranks share their node with their neighbour."""
    sizes = _essential(mesh, "dense") | {"pipeline": mesh.pipeline}
    stages = _groups(mesh.order, sizes, ("pipeline",)) // mesh.gpus_per_node
    shared = stages == np.roll(stages, -1, axis=1)
    return tuple(bool(pair) for pair in shared.all(axis=0))


def nearest_even(mesh: Mesh, axis: str, group: str) -> tuple[int, ...]:
    """The degrees of `axis` (one that a planner writes) next below and above the present one with
    which the groups of this kind would sit evenly; empty when there is none."""

    def even(degree: int) -> bool:
        candidate = _with_degree(mesh, axis, degree)
        return candidate is not None and len(members_per_node(candidate, group)) == 1

    return next_to(getattr(mesh, axis), filter(even, divisors(mesh.ranks)))


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
    changed = replace(mesh, **{axis: degree})
    cut = changed.tensor * changed.context * changed.pipeline
    if mesh.ranks % cut:
        return None
    changed = replace(changed, data=mesh.ranks // cut)
    whole = changed.stage_ranks % (changed.expert_tensor * changed.expert) == 0
    return changed if whole and stages_agree(changed) else None


def degrees(mesh: Mesh, grid: Grid) -> dict[str, int]:
    """The degree of every axis of the rank order in one of the two counts."""
    if grid == "dense":
        own = {"tensor": mesh.tensor, "context": mesh.context, "expert": 1, "data": mesh.data}
    else:
        own = {
            "tensor": mesh.expert_tensor,
            "context": 1,
            "expert": mesh.expert,
            "data": mesh.expert_data,
        }
    return own | {"pipeline": mesh.pipeline}


_GRIDS: Final[tuple[Grid, Grid]] = ("dense", "experts")
_NOT_PIPELINE: Final = ("tensor", "context", "expert", "data")


def _size(mesh: Mesh, group: str) -> int:
    grid, axes = GROUPS[group]
    sizes = degrees(mesh, grid)
    return prod(sizes[axis] for axis in axes)


def _numbers(mesh: Mesh, group: str) -> NDArray[np.int64]:
    """The number of each rank's group of a kind."""
    grid, axes = GROUPS[group]
    members = _groups(mesh.order, degrees(mesh, grid), axes)
    numbers = np.empty(mesh.ranks, np.int64)
    numbers[members] = np.arange(len(members))[:, None]
    return numbers


def _apart(order: tuple[str, ...], sizes: Mapping[str, int]) -> dict[str, int]:
    """Ranks between neighbours along each axis."""
    apart: dict[str, int] = {}
    stride = 1
    for axis in order:
        apart[axis] = stride
        stride *= sizes[axis]
    return apart


def _essential(mesh: Mesh, grid: Grid) -> dict[str, int]:
    """Degrees of the smallest grid in which groups meet nodes in the same ways as in the mesh.

    Along an axis whose neighbours are n ranks apart, the position within nodes of g GPUs repeats
    after q = g / gcd(n, g) steps. A degree of 2 q or more may therefore lose whole multiples of q:
    every rank keeps its position within a node, here and on slower axes, and what is left is wider
    than a node, so that nothing comes to share a node that did not.
    """
    apart, essential = 1, degrees(mesh, grid)
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
