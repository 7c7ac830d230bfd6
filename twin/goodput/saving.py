"""What a checkpoint holds, and how long a save and a load take.

A checkpoint holds the weights and the optimizer's states, each once however many ranks have them:
every rank of a stage writes an equal part, as Megatron-LM's distributed checkpoints and PyTorch's
do. A save copies it to host memory over PCIe, which blocks training in any case, and from there to
the storage. No node holds more than all its GPUs at the fullest stage, and that node is the last.

Left out: state of data loaders, and the metadata of many files, for which `overhead` is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from twin.planning.types import Plan
from twin.spec.goodput import CheckpointSpec, CheckpointStorageSpec

WEIGHT_BYTES = 2
"""Weights as training uses them, in bf16, beside the optimizer's in fp32. Under `fully_shard` there
are the latter only."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Bytes of a checkpoint: all, and what one rank of the fullest stage writes."""

    total: float
    rank: float


@dataclass(frozen=True, slots=True)
class Save:
    """Seconds of one save: for which training is blocked, and after those until it counts."""

    blocked: float
    lag: float


def checkpoint(plan: Plan) -> Checkpoint:
    """The bytes of a checkpoint, by the weights and optimizer states of the plan's stages. Norms
    and routers are counted on each tensor rank: less than a thousandth too much."""
    mesh = plan.mesh
    stages = [_stage_bytes(plan, stage) for stage in range(mesh.pipeline)]
    # Bidirectional schedules hold each part of the model on two stages.
    return Checkpoint(sum(stages) / mesh.copies, max(stages) / mesh.copies / mesh.stage_ranks)


def _stage_bytes(plan: Plan, stage: int) -> float:
    """Of what all ranks of a stage hold, each weight and its state once."""
    mesh, optimizer = plan.mesh, plan.scenario.train.optimizer
    width = 0 if plan.scenario.memory.fully_shard else WEIGHT_BYTES
    dense = expert = 0.0
    for chunk in (one for one in plan.chunks if one.stage == stage):
        own = optimizer.state_bytes(chunk.weights)
        dense += own[0] + width * (chunk.weights.replicated + chunk.weights.tensor)
        expert += own[1] + width * chunk.weights.expert
    holders = mesh.context * mesh.data, mesh.expert_data
    return mesh.stage_ranks * (dense / holders[0] + expert / holders[1])


def save(plan: Plan, written: Checkpoint, how: CheckpointSpec) -> Save:
    """Seconds of one save of a checkpoint."""
    pcie = plan.scenario.cluster.node.host.pcie
    copied = how.overhead + written.rank / (pcie.bandwidth * pcie.efficiency)
    stored = moved(plan, written, how.storage)
    if how.save == "synchronous":
        return Save(copied + stored, 0.0)
    return Save(copied, stored)


def moved(plan: Plan, written: Checkpoint, storage: CheckpointStorageSpec) -> float:
    """Seconds in which a checkpoint passes between all nodes and the storage."""
    node = plan.mesh.gpus_per_node * written.rank
    return max(node / storage.per_node, written.total / storage.total)
