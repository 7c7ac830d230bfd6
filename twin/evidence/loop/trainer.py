"""What the reference trainer reads, written from a scenario: the same words.

Model, memory policy and the section `parallel` go over as they are. Steps, text and learning rate
are the trainer's own: they change no time. Routing is balanced by force where the scenario says
that it is, since no router is after a few steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from twin.errors import Problem
from twin.planning.types import Plan

_SAME: Final = ("pipeline", "virtual", "expert", "zero", "order")
"""Fields of the section `parallel` that both have."""


def configuration(plan: Plan, output: Path, steps: int, pace: Path | None) -> dict[str, Any]:
    """The trainer's configuration: a run of so many steps into a folder, at a pace or none."""
    scenario = plan.scenario
    parallel, train = scenario.parallel, scenario.train
    written = parallel.model_dump(mode="json")
    return {
        "model": scenario.model.model_dump(mode="json", by_alias=True),
        "train": {
            "steps": steps,
            "sequence": train.sequence,
            "micro_batch": parallel.micro_batch,
            "accumulate": train.global_batch_sequences // parallel.micro_batch,
            "output": str(output),
            "device": "cpu",
            "timeline": True,
            "pace": None if pace is None else str(pace),
            "checkpoint_every": 0,
            "evaluate_every": 0,
            "final_sequences": 0,
        },
        "optimizer": {"kind": train.optimizer.model_dump()["kind"]},
        "balance": {"forced": train.routing.kind == "balanced"},
        "parallel": {name: written[name] for name in _SAME}
        | {"schedule": written["schedule"], "layers": layers_of_parts(plan)},
        "memory": scenario.memory.model_dump(mode="json"),
    }


def layers_of_parts(plan: Plan) -> list[int]:
    """Layers of each part of the model, as the plan cut it."""
    part_of = plan.scenario.parallel.schedule.chunk_map(
        plan.mesh.pipeline, plan.scenario.parallel.virtual
    ).part_of
    found = {
        part_of[chunk.index]: sum(layer.kind not in ("embedding", "head") for layer in chunk.layers)
        for chunk in plan.chunks
    }
    return [found[part] for part in sorted(found)]


def problems(plan: Plan) -> list[Problem]:
    """What of a scenario the reference does not do: TW371, one each."""
    return [Problem("TW371", *one) for one in _differences(plan)]


def _differences(plan: Plan) -> Iterator[tuple[str, str, str]]:
    scenario = plan.scenario
    parallel, train = scenario.parallel, scenario.train
    for axis in ("tensor", "context", "expert_tensor"):
        if getattr(parallel, axis) > 1:
            yield f"parallel.{axis}", f"the reference has no {axis} ranks", f"parallel.{axis}: 1"
    if parallel.zero > 1:
        yield "parallel.zero", "the reference shards optimizer states only", "parallel.zero: 1"
    if parallel.expert > 1 and parallel.overlap_shared_experts:
        yield (
            "parallel.overlap_shared_experts",
            "the reference's shared experts wait for routed ones",
            "parallel.overlap_shared_experts: false",
        )
    if parallel.dispatcher != "alltoall":
        yield "parallel.dispatcher", "the reference's all-to-all is plain", "alltoall"
    if parallel.overlap_param_gather:
        message = "the reference gathers weights when they are new"
        yield "parallel.overlap_param_gather", message, "parallel.overlap_param_gather: false"
    if train.precision != "bf16" or train.attention_kernel != "flash":
        yield "train", "the reference computes in bf16 with a fused attention kernel", ""
    if train.routing.kind != "balanced":
        message = "the reference routes by force only where routing is balanced"
        yield "train.routing", message, "train.routing: balanced"
    if scenario.memory.optimizer_update != "device":
        message = "the reference updates on the device"
        yield "memory.optimizer_update", message, "memory.optimizer_update: device"
