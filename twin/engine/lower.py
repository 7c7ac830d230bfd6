"""Plan to Program: templates of the passes and messages between stages; `engine.closing` ends the
step."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from twin.engine.buckets import gathered, reduced
from twin.engine.closing import delayed, finishes, opening
from twin.engine.collector import collection_ns
from twin.engine.cost_model import CostModel, nanoseconds, rates
from twin.engine.expert_rows import expert_rows
from twin.engine.handed import held
from twin.engine.link_map import wire
from twin.engine.passes import backward_pass, forward_pass, input_pass, weight_pass
from twin.engine.program import TENSOR, Offload, OverlapLoss, Program, StageMessage, Step, Template
from twin.engine.roles import Ranks, roles, seats
from twin.network.links import crossing, latency
from twin.planning.memory import boundary_bytes
from twin.planning.mesh import in_pods, neighbours_share
from twin.planning.offload import offload_bytes
from twin.planning.types import Plan
from twin.schedules.base import Pass


def lower(plan: Plan, ranks: Ranks = "folded") -> Program:
    """The Program of one step; `folded` plays one rank per pipeline stage, `group` every rank of
    one model-parallel group, `all` every rank of the run."""
    if ranks == "folded" and (known := held(plan)) is not None:
        return known.program
    scenario = plan.scenario
    message = _message(plan)
    host, profile = plan.uses_host, scenario.calibration
    wiring = wire(
        seats(plan, ranks),
        rates(scenario.cluster, profile),
        host=host,
        messages=message.link if plan.mesh.pipeline > 1 else None,
    )
    # A transfer of one rank per stage has alone what any has, whatever else is wired.
    folded = ranks == "folded"
    rows = None if folded else expert_rows(plan)
    costs = CostModel.of(plan, wiring.alone if folded else None, by_layer=rows is not None)
    if costs.host.waits_for("messages") and scenario.parallel.virtual == 1:
        # A stage goes on when its host has seen the message.
        seen = message.latency_ns + round(costs.host.sync_ns)
        message = replace(message, latency_ns=seen, awaited=True)
    passes = _passes(plan, costs)
    waited = nanoseconds(collection_ns(plan, costs, passes) / 1e9)
    closes = tuple(delayed(close, waited) for close in finishes(plan, costs))
    opens = [opening(plan, costs, stage) for stage in range(plan.mesh.pipeline)]
    return Program(
        roles=roles(plan, ranks),
        schedule=scenario.parallel.schedule,
        stages=plan.mesh.pipeline,
        chunks_per_stage=scenario.parallel.virtual,
        microbatches=plan.microbatches,
        passes=passes,
        receive=_receive(plan, costs),
        message=message,
        finish=tuple(steps for steps, _ in closes),
        ready_after=tuple(ready for _, ready in closes),
        wiring=wiring,
        sync_ns=costs.host.sync_ns,
        offload=_offload(plan),
        sms=scenario.cluster.node.gpu.sms,
        contention=profile.contention,
        beside=OverlapLoss(nanoseconds(profile.expert_wait), profile.expert_contention),
        expert_rows=rows,
        opening=tuple(steps for steps, _ in opens) if any(steps for steps, _ in opens) else (),
        opens=tuple(chunks for _, chunks in opens),
        ends=_ends(plan, costs),
    )


def _offload(plan: Plan) -> Offload | None:
    """Activations that travel through host memory."""
    if not any(policy.activations_on_host for policy in plan.policies):
        return None
    # Layers of one kind are one shared object.
    kinds = {tuple(map(id, chunk.layers)): chunk.layers for chunk in plan.chunks}
    sent = {key: offload_bytes(layers) for key, layers in kinds.items()}
    sizes = tuple(sent[tuple(map(id, chunk.layers))] for chunk in plan.chunks)
    return Offload(sizes, nanoseconds(plan.scenario.cluster.node.host.pcie.latency))


def _passes(plan: Plan, costs: CostModel) -> dict[tuple[Pass, int], Template]:
    """The template of every pass of every chunk; chunks of the same layers share theirs."""
    made: dict[tuple[int, ...], dict[Pass, Template]] = {}
    found: dict[tuple[Pass, int], Template] = {}
    for chunk in plan.chunks:
        # Layers of one kind are one shared object.
        key = tuple(id(layer) for layer in chunk.layers)
        if key not in made:
            made[key] = {
                "F": forward_pass(chunk.layers, costs),
                "B": backward_pass(chunk.layers, costs),
                "I": input_pass(chunk.layers, costs),
                "W": weight_pass(chunk.layers, costs),
            }
        found |= {(kind, chunk.index): template for kind, template in made[key].items()}
    return found


def _ends(plan: Plan, costs: CostModel) -> dict[tuple[Pass, int], Template]:
    """The first forward and the last backward of the chunk that has buckets."""
    chunk = next(one for one in plan.chunks if one.stage == 0)
    layers = chunk.layers
    found: dict[tuple[Pass, int], Template] = {}
    if weights := gathered(plan, chunk):
        found["F", chunk.index] = forward_pass(layers, costs, weights)
    if gradients := reduced(plan, chunk):
        parallel = plan.scenario.parallel
        order = parallel.schedule.order(parallel.pipeline, 1, plan.microbatches)[chunk.stage]
        if any(action.kind == "W" for action in order):
            found["W", chunk.index] = weight_pass(layers, costs, gradients)
        else:
            found["B", chunk.index] = backward_pass(layers, costs, gradients)
    return found


def _message(plan: Plan) -> StageMessage:
    neighbours = plan.placements["pipeline"]
    link: Literal["nvlink", "nic"] = "nvlink" if neighbours.per_node > 1 else "nic"
    cluster = plan.scenario.cluster
    delay = nanoseconds(latency(cluster, link, neighbours))
    far = link == "nic" and crossing(cluster, "message", neighbours) > 0
    message = StageMessage(boundary_bytes(plan.scenario), link, delay, far)
    if not far or not cluster.fabric.distance:
        return message
    near = neighbours_share(in_pods(plan.mesh, cluster.fabric.nodes_per_leaf))
    apart = tuple(not one for one in near)
    return replace(message, apart=apart, distance_ns=nanoseconds(cluster.fabric.distance))


def _receive(plan: Plan, costs: CostModel) -> Template:
    """The gather of a scattered message; nothing to do without tensor parallelism, or when the
    state stays cut."""
    if plan.mesh.tensor == 1 or plan.scenario.parallel.sequence_parallel:
        return ()
    state = boundary_bytes(plan.scenario) * plan.mesh.tensor
    flow, delay = costs.collective("all_gather", state, "tensor")
    return (Step("gather_message", TENSOR, delay, (), flow, "tensor"),)
