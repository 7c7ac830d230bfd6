"""Plan to Program: templates of the passes and messages between stages; `engine.closing` ends the
step."""

from __future__ import annotations

from typing import Literal

from twin.engine.closing import finish
from twin.engine.passes import (
    Coster,
    backward_pass,
    forward_pass,
    input_pass,
    nanoseconds,
    weight_pass,
)
from twin.engine.program import (
    MESH_GROUPS,
    TENSOR,
    Group,
    Message,
    Program,
    Role,
    Step,
    Template,
)
from twin.network import crowding, latency
from twin.plan.memory import boundary_bytes
from twin.plan.mesh import group_numbers
from twin.plan.types import Mesh, Plan
from twin.schedules.action import Pass


def lower(plan: Plan, ranks: Literal["folded", "all"] = "folded") -> Program:
    """The Program of one step; `folded` plays one rank per pipeline stage, `all` every rank of the
    run."""
    scenario = plan.scenario
    coster = Coster.of(plan)
    closes = [finish(plan, coster, stage) for stage in range(plan.mesh.pipeline)]
    return Program(
        roles=folded_roles(plan) if ranks == "folded" else all_roles(plan),
        schedule=scenario.parallel.schedule,
        stages=plan.mesh.pipeline,
        chunks_per_stage=scenario.parallel.virtual,
        microbatches=plan.microbatches,
        passes=_passes(plan, coster),
        receive=_receive(plan, coster),
        message=_message(plan),
        finish=tuple(steps for steps, _ in closes),
        ready_after=tuple(ready for _, ready in closes),
        capacity=coster.capacity,
        dispatch_ns=scenario.calibration.dispatch * 1e9,
    )


def _passes(plan: Plan, coster: Coster) -> dict[tuple[Pass, int], Template]:
    """The template of every pass of every chunk; chunks of the same layers share theirs."""
    recompute = plan.scenario.memory.recompute
    made: dict[tuple[int, ...], dict[Pass, Template]] = {}
    found: dict[tuple[Pass, int], Template] = {}
    for chunk in plan.chunks:
        # Layers of one kind are one shared object.
        key = tuple(id(layer) for layer in chunk.layers)
        if key not in made:
            made[key] = {
                "F": forward_pass(chunk.layers, coster),
                "B": backward_pass(chunk.layers, coster, recompute),
                "I": input_pass(chunk.layers, coster, recompute),
                "W": weight_pass(chunk.layers, coster),
            }
        found |= {(kind, chunk.index): template for kind, template in made[key].items()}
    return found


def folded_roles(plan: Plan) -> tuple[Role, ...]:
    """One role per stage: its ranks do the same at the same time, because nothing breaks their
    symmetry."""
    p = plan.mesh.pipeline
    return tuple(
        Role(
            f"stage {s}",
            s,
            plan.mesh.ranks // p,
            tuple(range(p)),
            _mirror_groups(plan.mesh, s) | _cross_groups(s, p, 0),
        )
        for s in range(p)
    )


def all_roles(plan: Plan) -> tuple[Role, ...]:
    """Every rank as its own role, numbered stage by stage, in the order of ranks."""
    mesh = plan.mesh
    numbers, width = group_numbers(mesh), mesh.stage_ranks
    roles: list[Role] = []
    for stage in range(mesh.pipeline):
        mirrors = _mirror_groups(mesh, stage)
        mirror = min(stage, mesh.pipeline - 1 - stage)
        for place in range(width):
            groups: dict[Group, int] = {
                group: int(numbers[group][mirror if group in mirrors else stage, place])
                for group in MESH_GROUPS
            }
            groups |= _cross_groups(stage, mesh.pipeline, place)
            peers = tuple(range(place, mesh.ranks, width))
            roles.append(Role(f"stage {stage} rank {place}", stage, 1, peers, groups))
    return tuple(roles)


def _mirror_groups(mesh: Mesh, stage: int) -> dict[Group, int]:
    """Groups that a stage shares with its mirror, which holds copies of the same weights."""
    if mesh.copies == 1:
        return {}
    mirror = min(stage, mesh.pipeline - 1 - stage)
    return {"data": mirror, "expert_data": mirror}


def _cross_groups(stage: int, stages: int, position: int) -> dict[Group, int]:
    """Groups that cross stages: first and last stage share a tied embedding; the world agrees on
    the gradient norm."""
    edge: dict[Group, int] = (
        {"embedding": position} if stages > 1 and stage in (0, stages - 1) else {}
    )
    return {**edge, "world": 0}


def _message(plan: Plan) -> Message:
    neighbours = plan.placements["pipeline"]
    link: Literal["nvlink", "nic"] = "nvlink" if neighbours.per_node > 1 else "nic"
    cluster = plan.scenario.cluster
    delay = nanoseconds(latency(cluster, link, neighbours))
    crowd = crowding(cluster, "message", neighbours) if link == "nic" else 1.0
    return Message(boundary_bytes(plan.scenario) * crowd, link, delay)


def _receive(plan: Plan, coster: Coster) -> Template:
    """The gather of a scattered message; nothing to do without tensor parallelism, or when the
    state stays cut."""
    if plan.mesh.tensor == 1 or plan.scenario.parallel.sequence_parallel:
        return ()
    state = boundary_bytes(plan.scenario) * plan.mesh.tensor
    flow, delay = coster.collective("all_gather", state, "tensor")
    return (Step("gather_message", TENSOR, delay, (), flow, "tensor"),)
