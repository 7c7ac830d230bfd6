"""Which ranks a Program plays, and where they sit.

Folded: one rank per pipeline stage; nothing breaks the symmetry of the others, so they do the same
at the same time. Where GPUs differ, one rank for each kind of rank (`unevenness`). A group: every
rank of one model-parallel group, those that share the layers of one replica with each other through
tensor, context and expert groups. All: every rank of the run.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from twin.engine.link_map import Seats
from twin.engine.program import MESH_GROUPS, Group, Role
from twin.engine.unevenness import Noise, Shares, by_first, coloured, numbered, refined, shares
from twin.network.links import capacity, sharers
from twin.planning.mesh import group_numbers, ranks_of_stages
from twin.planning.types import Mesh, Plan

Ranks = Literal["folded", "group", "all"]
"""What is played: one rank per stage, one model-parallel group, or all ranks."""

Positions = NDArray[np.int64]
"""Of every place in a stage, the position of the role that plays it."""

_MODEL_PARALLEL: Final = ("tensor", "context", "expert_tensor", "expert")


def roles(
    plan: Plan, ranks: Ranks = "folded", positions: Positions | None = None
) -> tuple[Role, ...]:
    """The roles of a run, stage by stage; `positions` where others than those of its own."""
    mesh = plan.mesh
    if positions is None:
        positions = positions_of(plan, ranks)
    # The first place of each position, in order.
    _, places, alike = np.unique(positions, return_index=True, return_counts=True)
    width, numbers = len(places), _numbers(mesh, ranks, positions)
    stages, left = ranks_of_stages(mesh), shares(plan.scenario.cluster)
    jitter = plan.scenario.cluster.jitter
    noise = Noise(jitter.kernel_spread, jitter.seed) if jitter and jitter.kernel_spread else None
    experts = np.zeros_like(positions) if ranks == "folded" else _within(numbers["expert"][0])
    found: list[Role] = []
    for stage in range(mesh.pipeline):
        mirrors, mirror = _mirror_groups(mesh, stage), min(stage, mesh.pipeline - 1 - stage)
        for position, place in enumerate(places.tolist()):
            groups: dict[Group, int] = {
                group: int(numbers[group][mirror if group in mirrors else stage, place])
                for group in MESH_GROUPS
                if numbers
            }
            norm = stage if plan.scenario.parallel.schedule.staggered else 0
            groups = (groups or mirrors) | _cross_groups(stage, mesh.pipeline, position)
            groups["world"] = norm
            rank = int(stages[stage, place])
            name = f"stage {stage}" if width == 1 else f"stage {stage} rank {rank}"
            peers = tuple(range(position, width * mesh.pipeline, width))
            own = Shares(*left[rank].tolist())
            expert = int(experts[place])
            found.append(
                Role(name, stage, int(alike[position]), peers, groups, own, noise, rank, expert)
            )
    return tuple(found)


def _within(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of every place in a stage its number in its group."""
    order = np.argsort(groups, kind="stable")
    first = np.searchsorted(groups[order], groups)
    found = np.empty_like(order)
    found[order] = np.arange(len(groups))
    return found - first


def roles_of_ranks(
    plan: Plan, ranks: Ranks = "folded", positions: Positions | None = None
) -> NDArray[np.int64]:
    """Of every rank of the run, the role that stands for it."""
    stages = ranks_of_stages(plan.mesh)
    if positions is None:
        positions = positions_of(plan, ranks)
    found = np.empty(plan.mesh.ranks, np.int64)
    width = int(positions.max()) + 1
    for stage, members in enumerate(stages):
        found[members] = stage * width + positions
    return found


def seats(plan: Plan, ranks: Ranks = "folded", positions: Positions | None = None) -> Seats:
    """Where the ranks of these roles sit."""
    cluster = plan.scenario.cluster
    role_of = roles_of_ranks(plan, ranks, positions)
    _, first = np.unique(role_of, return_index=True)
    node = cluster.node
    return Seats(
        role_of=role_of,
        first=first.tolist(),
        switch=round(sharers(cluster, "pcie_uplink")),
        socket=max(1, round(sharers(cluster, "dram"))),
        node=node.gpus,
        pod=node.gpus * cluster.fabric.nodes_per_leaf,
        shares=[Shares(*row) for row in shares(cluster)[first].tolist()] if cluster.uneven else (),
    )


def _numbers(mesh: Mesh, ranks: Ranks, positions: Positions) -> dict[str, NDArray[np.int64]]:
    """For each kind of group, the number of the group that a place of a stage belongs to; empty
    where all ranks of a stage do the same. Groups of folded ranks that are alike have one number.
    """
    if ranks != "folded":
        return group_numbers(mesh)
    if positions.max() == 0:
        return {}
    apart = np.arange(mesh.pipeline)[:, None] * len(positions)
    return {
        group: apart + coloured(positions, numbers[0])
        for group, numbers in group_numbers(mesh).items()
    }


def positions_of(plan: Plan, ranks: Ranks = "folded") -> Positions:
    """Of every place in a stage, the position of the role that plays it."""
    mesh = plan.mesh
    everyone = np.arange(mesh.stage_ranks)
    uneven = plan.scenario.cluster.uneven
    if ranks == "all" or (ranks == "group" and uneven) or plan.scenario.cluster.noisy:
        return everyone  # no group of uneven ranks stands for the others
    if ranks == "folded":
        return _alike(plan) if uneven else np.zeros_like(everyone)
    numbers = group_numbers(mesh)
    # Places that share any of these groups, and theirs, are one component: the smallest place in it
    # names it. Few rounds suffice, because groups are regular.
    named = everyone
    while True:
        before = named
        for group in _MODEL_PARALLEL:
            own = numbers[group][0]
            least = np.full(own.max() + 1, mesh.stage_ranks)
            np.minimum.at(least, own, named)
            named = least[own]
        if (named == before).all():
            break
    positions = np.empty_like(everyone)
    for name in np.unique(named):
        inside = named == name
        positions[inside] = np.arange(inside.sum())
    return positions


def _alike(plan: Plan) -> Positions:
    """The places whose ranks do the same in every stage have one position, in the order of their
    first ones."""
    mesh, cluster = plan.mesh, plan.scenario.cluster
    stages, numbers = ranks_of_stages(mesh), group_numbers(mesh)
    # What a place's GPUs are like in each stage.
    gpus = numbered(shares(cluster))[stages].T
    kinds = [numbers[group][0] for group in MESH_GROUPS]
    # Whoever shares links of a node, or of a pod, does so stage by stage.
    node = cluster.node.gpus
    if plan.uses_host:
        for size in (round(sharers(cluster, one)) for one in ("pcie_uplink", "dram")):
            within = stages % node // max(1, size)
            kinds += [*(stages // node * node + within)]
    if capacity(cluster, "leaf") is not None:
        kinds += [row // (node * cluster.fabric.nodes_per_leaf) for row in stages]
    return by_first(refined(numbered(gpus), kinds))


def _mirror_groups(mesh: Mesh, stage: int) -> dict[Group, int]:
    """Groups that a stage shares with its mirror, which holds copies of the same weights."""
    if mesh.copies == 1:
        return {}
    mirror = min(stage, mesh.pipeline - 1 - stage)
    return {"data": mirror, "expert_data": mirror}


def _cross_groups(stage: int, stages: int, position: int) -> dict[Group, int]:
    """Groups that cross stages: first and last stage share a tied embedding."""
    return {"embedding": position} if stages > 1 and stage in (0, stages - 1) else {}
