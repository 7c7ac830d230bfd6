"""What a Plan says of one stage, in the words of `reference.shapes`, and the run that it is of."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import Any

import twin
from reference.config import RunSpec
from twin.arch.ops import CollectiveKind, Layer, Op
from twin.arch.parameters import on_rank
from twin.arch.recompute import again
from twin.arch.stack import parameters_of
from twin.collectives.base import Traffic
from twin.engine.closing import finishes
from twin.engine.cost_model import CostModel
from twin.engine.passes import backward_pass, forward_pass, input_pass, weight_pass
from twin.engine.program import Template
from twin.network.placement import Placement
from twin.planning.chunks import shape_of
from twin.planning.footprint import kept_by_op
from twin.planning.memory import PARAMETER_BYTES, boundary_bytes
from twin.planning.types import Chunk, Plan
from twin.schedules.base import Pass

Calls = dict[tuple[str, str], tuple[int, int]]
"""By name and group: how often in a step, and bytes in all."""
KIMI_K2 = "scenarios/kimi-k2-2048xh800.yaml"
PLAIN = "parallel.dispatcher=alltoall"


def planned(*overrides: str) -> Plan:
    """Kimi K2 on 2,048 H800 as committed, but with the trainer's all-to-all."""
    return twin.plan(twin.load(KIMI_K2, [PLAIN, *overrides]))


def run_of(plan: Plan) -> RunSpec:
    """The trainer's configuration of a plan."""
    scenario, parallel = plan.scenario, plan.scenario.parallel
    kinds = ("dense", "moe")
    layers = [sum(layer.kind in kinds for layer in chunk.layers) for chunk in plan.chunks]
    train: dict[str, Any] = {
        "steps": 1,
        "sequence": scenario.train.sequence,
        "micro_batch": parallel.micro_batch,
        "accumulate": plan.microbatches * plan.mesh.data,
        "precision": "bf16",
    }
    cut: dict[str, Any] = {
        "pipeline": parallel.pipeline,
        "virtual": parallel.virtual,
        "expert": parallel.expert,
        "zero": parallel.zero,
        "schedule": parallel.schedule,
        "layers": layers,
    }
    return RunSpec.model_validate(
        {"model": scenario.model, "train": train, "parallel": cut, "memory": scenario.memory}
    )


class Payloads(CostModel):
    """A costs whose traffic is the payload: templates made with it say what they send."""

    def flow(self, kind: CollectiveKind, size: float, placement: Placement) -> Traffic:
        """All of it."""
        del kind, placement
        return Traffic(nic_bytes=size)


def payloads(plan: Plan) -> Payloads:
    """That of a plan."""
    costs = CostModel.of(plan)
    return Payloads(**{one.name: getattr(costs, one.name) for one in fields(CostModel) if one.init})


def collectives(plan: Plan, stage: int) -> Calls:
    """Every collective and message of a rank of a stage."""
    costs, found = payloads(plan), Counter[tuple[str, str]]()
    total: Counter[tuple[str, str]] = Counter()

    def add(template: Template, times: int) -> None:
        for step in template:
            if step.traffic is not None:
                found[step.name, step.group] += times
                total[step.name, step.group] += times * round(step.traffic.nic_bytes)

    for chunk in plan.chunks:
        if chunk.stage == stage:
            for template in _passes(plan, chunk, costs):
                add(template, plan.runs_per_chunk)
    add(finishes(plan, costs)[stage][0], 1)
    calls = {one: (number, total[one]) for one, number in found.items()}
    return calls | _messages(plan, stage)


def _passes(plan: Plan, chunk: Chunk, costs: CostModel) -> list[Template]:
    forward = forward_pass(chunk.layers, costs)
    if _splits(plan):
        back = [input_pass(chunk.layers, costs), weight_pass(chunk.layers, costs)]
        return [forward, *back]
    return [forward, backward_pass(chunk.layers, costs)]


def _splits(plan: Plan) -> bool:
    parallel = plan.scenario.parallel
    order = parallel.schedule.order(plan.mesh.pipeline, parallel.virtual, plan.microbatches)
    return any(action.kind == "I" for action in order[0])


def _messages(plan: Plan, stage: int) -> Calls:
    parallel = plan.scenario.parallel
    places = parallel.schedule.chunk_map(plan.mesh.pipeline, parallel.virtual)
    size, found = round(boundary_bytes(plan.scenario)), Counter[str]()
    for chunk in plan.chunks:
        if chunk.stage == stage:
            for name, to in (("activations", places.after), ("gradients", places.before)):
                other = to[chunk.index]
                if other is not None and places.stage_of[other] != stage:
                    found[name] += plan.runs_per_chunk
    return {(name, "pipeline"): (number, number * size) for name, number in found.items()}


def flop(plan: Plan, chunk: Chunk) -> dict[Pass, float]:
    """FLOP of a chunk's passes. The plan's `moe_down` runs again as K2's report has it; the
    trainer's does not, since nothing needs its output."""
    ops = [(layer, one) for layer in chunk.layers for one in layer.items if isinstance(one, Op)]
    forward = sum(one.forward.flop for _, one in ops)
    inputs = sum(one.backward.flop + _repeated(layer, one) for layer, one in ops)
    weights = sum(one.weight.flop for _, one in ops)
    if _splits(plan):
        return {"F": forward, "I": inputs, "W": weights}
    return {"F": forward, "B": inputs + weights}


def _repeated(layer: Layer, one: Op) -> float:
    recompute = [name for name in layer.policy.recompute if name != "moe_down"]
    return one.forward.flop if one.name in again(layer, recompute) else 0.0


def kept(plan: Plan, chunk: Chunk) -> dict[int, dict[str, int]]:
    """Bytes that a chunk's layers keep of one forward, by layer and op, as tensors of their own:
    indices and weights of the chosen experts, 4 bytes each, apart from the router's scores."""
    found: dict[int, dict[str, int]] = {}
    number = chunk.first_layer
    for layer in chunk.layers:
        if layer.kind not in ("dense", "moe"):
            continue
        by_op = kept_by_op(layer, layer.policy)
        found[number] = {name: round(size) for name, size in by_op.items()}
        moe = plan.scenario.model.moe
        if layer.kind == "moe" and moe is not None and "router_scores" in by_op:
            tokens = plan.scenario.parallel.micro_batch * plan.scenario.train.sequence
            found[number]["router_scores"] -= 2 * 4 * tokens * moe.top_k
            found[number]["chosen"] = 2 * 4 * tokens * moe.top_k
        number += 1
    return found


def parameters(plan: Plan, chunk: Chunk) -> Counter[int]:
    """Sizes of a chunk's trained parameters in bytes, as its rank holds them."""
    model, shape = plan.scenario.model, shape_of(plan.scenario)
    return Counter(
        PARAMETER_BYTES * row.elements
        for layer in chunk.layers
        for row in on_rank(parameters_of(model, layer.kind), shape)
        if row.role != "buffer"
    )
