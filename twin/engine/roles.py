"""Which ranks a Program plays, and where they sit.

Folded: one rank per pipeline stage; nothing breaks the symmetry of the others, so they do the same
at the same time. A group: every rank of one model-parallel group, those that share the layers of
one replica with each other through tensor, context and expert groups. All: every rank of the run.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from twin.engine.link_map import Seats
from twin.engine.program import MESH_GROUPS, Group, Role
from twin.network.links import sharers
from twin.planning.mesh import group_numbers, ranks_of_stages
from twin.planning.types import Mesh, Plan

Ranks = Literal["folded", "group", "all"]
"""What is played: one rank per stage, one model-parallel group, or all ranks."""

_MODEL_PARALLEL: Final = ("tensor", "context", "expert_tensor", "expert")


def roles(plan: Plan, ranks: Ranks = "folded") -> tuple[Role, ...]:
    """The roles of a run, stage by stage."""
    mesh = plan.mesh
    positions = _positions(mesh, ranks)
    # The first place of each position, in order.
    _, places = np.unique(positions, return_index=True)
    width, numbers = len(places), group_numbers(mesh) if ranks != "folded" else {}
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
            name = f"stage {stage}" if ranks == "folded" else f"stage {stage} rank {place}"
            peers = tuple(range(position, width * mesh.pipeline, width))
            found.append(Role(name, stage, mesh.stage_ranks // width, peers, groups))
    return tuple(found)


def seats(plan: Plan, ranks: Ranks = "folded") -> Seats:
    """Where the ranks of these roles sit."""
    mesh, cluster = plan.mesh, plan.scenario.cluster
    positions, stages = _positions(mesh, ranks), ranks_of_stages(mesh)
    _, places = np.unique(positions, return_index=True)
    width = len(places)
    role_of = np.empty(mesh.ranks, np.int64)
    for stage, members in enumerate(stages):
        role_of[members] = stage * width + positions
    first = [int(members[place]) for members in stages for place in places]
    node = cluster.node
    return Seats(
        role_of=role_of,
        first=first,
        switch=round(sharers(cluster, "pcie_uplink")),
        socket=max(1, round(sharers(cluster, "dram"))),
        node=node.gpus,
        pod=node.gpus * cluster.fabric.nodes_per_leaf,
    )


def _positions(mesh: Mesh, ranks: Ranks) -> NDArray[np.int64]:
    """Of every place in a stage, the position of the role that plays it."""
    everyone = np.arange(mesh.stage_ranks)
    if ranks == "all":
        return everyone
    if ranks == "folded":
        return np.zeros_like(everyone)
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


def _mirror_groups(mesh: Mesh, stage: int) -> dict[Group, int]:
    """Groups that a stage shares with its mirror, which holds copies of the same weights."""
    if mesh.copies == 1:
        return {}
    mirror = min(stage, mesh.pipeline - 1 - stage)
    return {"data": mirror, "expert_data": mirror}


def _cross_groups(stage: int, stages: int, position: int) -> dict[Group, int]:
    """Groups that cross stages: first and last stage share a tied embedding."""
    return {"embedding": position} if stages > 1 and stage in (0, stages - 1) else {}
