"""What the light model of a step is told about a scenario: layers by pass, messages, and what opens
and closes a step (`twin.planning.step_length`)."""

from __future__ import annotations

from collections.abc import Sequence

from twin.arch.ops import Layer, OpClass, Weights, Work
from twin.network.links import capacity, latency, sharers
from twin.optimizers.base import squares
from twin.planning.layer_times import PASSES, Scale, each_once, priced_for
from twin.planning.memory import boundary_bytes
from twin.planning.offload import host_phases, on_device, share_of
from twin.planning.pair_times import Gpu
from twin.planning.step_length import LayerCost, StepCosts
from twin.planning.types import Chunk, Mesh


def step_costs(layers: Sequence[Layer], scale: Scale, mesh: Mesh) -> StepCosts:
    """What a step of a scenario is made of, with these layers."""
    scenario, parallel = scale.scenario, scale.scenario.parallel
    alike = max(1, scenario.model.layers // mesh.pipeline)
    costs = each_once(layers, lambda layer: _layer_cost(layer, scale, mesh, alike))
    behind, (sending, message, gathering) = 1 + scenario.model.layers, _message(scale)
    return StepCosts(
        before=costs[0],
        layers=tuple(costs[1:behind]),
        behind=tuple(costs[behind:]),
        sending=sending,
        message=message,
        gathering=gathering,
        each_pass=scale.host.microbatch,
        buckets=(parallel.overlap_param_gather, parallel.overlap_grad_reduce),
        gpu=Gpu(scenario.cluster.node.gpu.sms, scenario.calibration.contention),
    )


def _layer_cost(layer: Layer, scale: Scale, mesh: Mesh, alike: int) -> LayerCost:
    pairs = scale.scenario.parallel.schedule.pairs
    pieces = tuple(scale.pieces(layer, kind) for kind in PASSES) if pairs else ()
    return LayerCost(scale.passes(layer), *layer_ends(layer, scale, mesh, alike), pieces)


def layer_ends(
    layer: Layer, scale: Scale, mesh: Mesh, alike: int = 1
) -> tuple[float, float, float]:
    """Seconds by which a layer opens, reduces and closes a step (`LayerCost`): its part in what so
    many layers take together, whose latencies and launches are few."""
    scenario, parallel = scale.scenario, scale.scenario.parallel
    reduces = gathers = 0.0
    if parallel.zero < 2:
        kind = "reduce_scatter" if parallel.zero else "all_reduce"
        reduces = scale.over_replicas(kind, layer.learned, alike * scenario.train.sent_bytes)
    if parallel.zero in (1, 2):
        width = alike * scenario.train.gathered_bytes
        gathers = scale.over_replicas("all_gather", layer.learned, width)
    issued = scale.host.step([layer]) - scale.host.step([])
    updates = max(_updates((layer,) * alike, scale, mesh) / alike, issued)
    opens = gathers if parallel.overlap_param_gather else 0.0
    return opens / alike, reduces / alike, updates + (gathers - opens) / alike


def _updates(layers: tuple[Layer, ...], scale: Scale, mesh: Mesh) -> float:
    """Seconds of the optimizer for the weights of layers."""
    scenario = scale.scenario
    learned = sum((layer.learned for layer in layers), Weights())
    share = share_of(scenario, mesh, [Chunk(0, 0, layers, learned, 0)])
    here = on_device(scenario, share) if scenario.memory.states_on_host else share
    step, priced = scenario.train.optimizer.step(here), priced_for(scenario)
    works: tuple[tuple[OpClass, Work], ...]
    works = (("gradient_norm", squares(share.learned)), *step.works)
    total = sum(priced(kind, work, False).seconds for kind, work in works)
    phases = host_phases(scenario, share)
    if not phases:
        return total
    # Copies and the host's cores share the memory of a socket.
    through = sum(one.bytes for one in phases if one.place == "host") or sum(
        one.bytes for one in phases
    )
    seconds = [through * sharers(scenario.cluster, "dram") / capacity(scenario.cluster, "dram")]
    for one in phases:
        if one.place in ("to_host", "from_host"):
            seconds.append(one.bytes / capacity(scenario.cluster, "pcie"))
        seconds.append(sum(priced(kind, work, False).seconds for kind, work in one.works))
    return total + max(seconds)


def _message(scale: Scale) -> tuple[float, float, float]:
    """Seconds of a message between neighbouring stages, on an idle link: of its sender's port,
    until it is there, and of the gather of one that tensor ranks send in parts."""
    scenario, placement = scale.scenario, scale.placements["pipeline"]
    if placement.size == 1:
        return 0.0, 0.0, 0.0
    link = "nvlink" if placement.per_node > 1 else "nic"
    cluster, size = scenario.cluster, boundary_bytes(scenario)
    sending = size / capacity(cluster, link)
    message, gathering = sending + latency(cluster, link, placement), 0.0
    if not scenario.parallel.sequence_parallel:
        gathering = scale.seconds("all_gather", size * scenario.parallel.tensor, "tensor")
    return sending, message, gathering
