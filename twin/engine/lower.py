"""Plan to Program: templates of the passes, messages between stages, and how the step closes.

The step closes as ZeRO-1 does (Rajbhandari et al. 2020, section 5): gradients of a chunk are
reduce-scattered over its replicas as soon as its last backward pass is done (weights that sequence
parallelism feeds with slices of the sequence also over the tensor ranks), the gradient norm is
agreed by all ranks, the optimizer updates its shard, and the new weights are all-gathered. The next
step's forward does not yet start under that all-gather.
"""

from __future__ import annotations

from typing import Literal

from twin.arch.ops import CollectiveKind, Weights
from twin.collectives import traffic
from twin.engine.passes import Coster, backward_pass, forward_pass, nanoseconds
from twin.engine.program import COMPUTE, DATA, TENSOR, Group, Message, Program, Role, Step, Template
from twin.hardware import seconds
from twin.network import capacity, latency
from twin.network.placement import Placement
from twin.optimizers import OptimizerStep
from twin.plan.memory import GRADIENT_BYTES, PARAMETER_BYTES, boundary_bytes
from twin.plan.types import Chunk, Plan
from twin.schedules.action import Pass


def lower(plan: Plan, ranks: Literal["folded", "all"] = "folded") -> Program:
    """The Program of one step; `folded` plays one rank per pipeline stage, `all` every rank of the
    run."""
    scenario = plan.scenario
    coster = Coster.of(plan)
    passes: dict[tuple[Pass, int], Template] = {}
    for chunk in plan.chunks:
        passes["F", chunk.index] = forward_pass(chunk.layers, coster)
        passes["B", chunk.index] = backward_pass(chunk.layers, coster, scenario.memory.recompute)
    closes = [_finish(plan, coster, stage) for stage in range(plan.mesh.pipeline)]
    return Program(
        roles=folded_roles(plan) if ranks == "folded" else all_roles(plan),
        schedule=scenario.parallel.schedule,
        stages=plan.mesh.pipeline,
        chunks_per_stage=scenario.parallel.virtual,
        microbatches=plan.microbatches,
        passes=passes,
        receive=_receive(plan, coster),
        message=_message(plan),
        finish=tuple(steps for steps, _ in closes),
        ready_after=tuple(ready for _, ready in closes),
        capacity={link: capacity(scenario.cluster, link) / 1e9 for link in ("nvlink", "nic")},
    )


def folded_roles(plan: Plan) -> tuple[Role, ...]:
    """One role per stage: its ranks do the same at the same time, because nothing breaks their
    symmetry."""
    p = plan.mesh.pipeline
    return tuple(
        Role(
            f"stage {s}", s, plan.mesh.ranks // p, (s + 1) % p, (s - 1) % p, _cross_groups(s, p, 0)
        )
        for s in range(p)
    )


def all_roles(plan: Plan) -> tuple[Role, ...]:
    """Every rank as its own role, numbered pipeline-major, then replica, expert and tensor."""
    mesh = plan.mesh
    p, width = mesh.pipeline, mesh.data * mesh.tensor
    roles: list[Role] = []
    for rank in range(mesh.ranks):
        stage, rest = divmod(rank, width)
        data, tensor = divmod(rest, mesh.tensor)
        replica, expert = divmod(data, mesh.expert)
        groups: dict[Group, int] = {
            "tensor": stage * mesh.data + data,
            "expert": (stage * mesh.expert_data + replica) * mesh.tensor + tensor,
            "data": stage * mesh.tensor + tensor,
            "expert_data": stage * mesh.expert + expert,
            **_cross_groups(stage, p, rest),
        }
        name = f"stage {stage} data {data} tensor {tensor}"
        ahead, behind = ((stage + d) % p * width + rest for d in (1, -1))
        roles.append(Role(name, stage, 1, ahead, behind, groups))
    return tuple(roles)


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
    delay = nanoseconds(latency(plan.scenario.cluster, link))
    return Message(boundary_bytes(plan.scenario), link, delay)


def _receive(plan: Plan, coster: Coster) -> Template:
    """The gather of a scattered message; nothing to do without tensor parallelism, or when the
    state stays cut."""
    if plan.mesh.tensor == 1 or plan.scenario.parallel.sequence_parallel:
        return ()
    state = boundary_bytes(plan.scenario) * plan.mesh.tensor
    flow, delay = coster.collective("all_gather", state, "tensor")
    return (Step("gather_message", TENSOR, delay, (), flow, "tensor"),)


def _finish(plan: Plan, coster: Coster, stage: int) -> tuple[Template, tuple[int | None, ...]]:
    """The closing steps of a stage, and the chunk whose last backward releases each."""
    closing = _Closing(plan, coster)
    sharded = plan.scenario.parallel.zero >= 1
    kind: CollectiveKind = "reduce_scatter" if sharded else "all_reduce"
    chunks = [chunk for chunk in plan.chunks if chunk.stage == stage]
    total = Weights()
    for chunk in reversed(chunks):
        total = total + chunk.weights
        closing.collectives(f"{kind}_gradients", kind, chunk.weights, GRADIENT_BYTES, chunk.index)
    if plan.scenario.parallel.sequence_parallel:
        # These weights have seen only the rank's slice of the sequence (Megatron-LM does the same).
        size = total.replicated * GRADIENT_BYTES
        closing.add("replicated_gradients", "all_reduce", size, "tensor")
    if (
        plan.scenario.model.tied_embeddings
        and stage in (0, plan.mesh.pipeline - 1)
        and plan.mesh.pipeline > 1
    ):
        closing.embedding()
    update = _update(plan, chunks)
    closing.gradient_norm()
    closing.add("momentum_gather", "all_gather", update.gather_dense_bytes, "data")
    closing.add("momentum_gather", "all_gather", update.gather_expert_bytes, "expert_data")
    closing.optimizer(update)
    if sharded:
        closing.collectives("all_gather_weights", "all_gather", total, PARAMETER_BYTES, None)
    return tuple(closing.steps), tuple(closing.ready)


def _update(plan: Plan, chunks: list[Chunk]) -> OptimizerStep:
    """What the optimizer does on one rank that holds these chunks."""
    sharded = plan.scenario.parallel.zero >= 1
    return plan.scenario.train.optimizer.step(
        sum((chunk.weights for chunk in chunks), Weights()),
        plan.mesh.data if sharded else 1,
        plan.mesh.expert_replicas if sharded else 1,
        tuple(m for chunk in chunks for layer in chunk.layers for m in layer.matrices),
    )


class _Closing:
    """Collects the closing steps of one stage, one after another on the data stream."""

    def __init__(self, plan: Plan, coster: Coster) -> None:
        self.plan, self.coster = plan, coster
        self.steps: list[Step] = []
        self.ready: list[int | None] = []

    def add(
        self, name: str, kind: CollectiveKind, size: float, group: Group, chunk: int | None = None
    ) -> None:
        """Add a collective, unless its group is this rank alone or there is nothing to move."""
        if size == 0 or (
            group in self.coster.placements and self.coster.placements[group].size == 1
        ):
            return
        flow, delay = self.coster.collective(kind, size, group)
        self._append(Step(name, DATA, delay, self._after(chunk), flow, group), chunk)

    def collectives(
        self, name: str, kind: CollectiveKind, weights: Weights, width: int, chunk: int | None
    ) -> None:
        """Add a collective over the replicas of the dense weights, and one over those of the
        experts."""
        self.add(name, kind, (weights.replicated + weights.tensor) * width, "data", chunk)
        self.add(name, kind, weights.expert * width, "expert_data", chunk)

    def embedding(self) -> None:
        """First and last stage add up the gradients of their copies of a tied embedding (Narayanan
        et al. 2021)."""
        model = self.plan.scenario.model
        size = model.vocab * model.hidden / self.plan.mesh.tensor * GRADIENT_BYTES
        edges = Placement(2, 2 if self.plan.mesh.ranks <= self.plan.mesh.gpus_per_node else 1)
        flow, delay = self.coster.priced(traffic("all_reduce", size, edges))
        self._append(
            Step("embedding_gradients", DATA, delay, self._after(None), flow, "embedding"), None
        )

    def gradient_norm(self) -> None:
        """All ranks agree on the gradient norm, so that all clip alike; nobody updates before."""
        flow, delay = self.coster.agree(self.plan.mesh.ranks)
        self._append(Step("gradient_norm", DATA, delay, self._after(None), flow, "world"), None)

    def optimizer(self, update: OptimizerStep) -> None:
        """Add the update itself, on the compute stream."""
        scenario = self.plan.scenario
        gpu = scenario.cluster.node.gpu
        time = sum(seconds(kind, work, gpu, scenario.calibration) for kind, work in update.works)
        self._append(Step("optimizer", COMPUTE, nanoseconds(time), self._after(None)), None)

    def _after(self, chunk: int | None) -> tuple[int, ...]:
        """Reductions of chunks wait for their chunk only (and, in order, for their stream); what
        follows waits for all before."""
        return () if chunk is not None or not self.steps else (len(self.steps) - 1,)

    def _append(self, step: Step, chunk: int | None) -> None:
        self.steps.append(step)
        self.ready.append(chunk)
