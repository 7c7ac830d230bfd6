"""How a step closes: gradients reduced over replicas, their norm agreed, the update, the weights.

The step closes as ZeRO-1 does (Rajbhandari et al. 2020, section 5): gradients of a chunk are
reduce-scattered over its replicas as soon as its last backward pass is done (weights that sequence
parallelism feeds with slices of the sequence also over the tensor ranks), the gradient norm is
agreed by all ranks, the optimizer updates its shard, and the new weights are all-gathered. From
ZeRO-2 on the backward passes have reduced the gradients already; under ZeRO-3 the next forward
gathers weights as it goes. The next step's forward does not yet start under that all-gather.
"""

from __future__ import annotations

from collections.abc import Iterable

from twin.arch.ops import CollectiveKind, OpClass, Weights, Work
from twin.collectives import traffic
from twin.engine.passes import Coster, nanoseconds
from twin.engine.program import COMPUTE, DATA, Group, Step, Template
from twin.hardware import seconds
from twin.network.placement import Placement
from twin.optimizers import Maxima, Sent, Share, squares
from twin.plan.compile import chunk_map_of
from twin.plan.memory import GRADIENT_BYTES, PARAMETER_BYTES, shards
from twin.plan.types import Chunk, Plan


def finish(plan: Plan, coster: Coster, stage: int) -> tuple[Template, tuple[int | None, ...]]:
    """The closing steps of a stage, and the chunk whose last backward releases each."""
    closing = _Closing(plan, coster)
    zero = plan.scenario.parallel.zero
    # In the order of the model's parts, so that stages which hold copies of each other agree on it.
    # By first layer they would not where the first part has no layer.
    part_of = chunk_map_of(plan.scenario).part_of
    chunks = sorted(
        (chunk for chunk in plan.chunks if chunk.stage == stage), key=lambda one: part_of[one.index]
    )
    total = sum((chunk.weights for chunk in chunks), Weights())
    if zero < 2:
        kind: CollectiveKind = "reduce_scatter" if zero else "all_reduce"
        for chunk in reversed(chunks):
            closing.collectives(
                f"{kind}_gradients", kind, chunk.weights, GRADIENT_BYTES, chunk.index
            )
    else:
        closing.wait()
    held, _ = shards(plan.scenario, plan.mesh, 2)
    if plan.scenario.parallel.sequence_parallel:
        # These weights have seen only the rank's slice of the sequence (Megatron-LM does the same).
        size = total.replicated * GRADIENT_BYTES / held
        closing.add("replicated_gradients", "all_reduce", size, "tensor")
    if (
        plan.scenario.model.tied_embeddings
        and stage in (0, plan.mesh.pipeline - 1)
        and plan.mesh.pipeline > 1
        and plan.mesh.copies == 1  # else either of these stages holds both, and its mirror, too
    ):
        closing.embedding(held)
    share = _share(plan, chunks)
    update = plan.scenario.train.optimizer.step(share)
    closing.compute((("bandwidth", squares(share.learned)),))
    closing.gradient_norm()
    closing.exchanges(update.before)
    if update.maxima is not None:
        closing.maxima(update.maxima)
    closing.compute(update.works)
    closing.exchanges(update.after)
    if zero in (1, 2):
        closing.collectives("all_gather_weights", "all_gather", total, PARAMETER_BYTES, None)
    return tuple(closing.steps), tuple(closing.ready)


def _share(plan: Plan, chunks: list[Chunk]) -> Share:
    """What one rank that holds these chunks updates."""
    layers = [layer for chunk in chunks for layer in chunk.layers]
    return Share(
        weights=sum((chunk.weights for chunk in chunks), Weights()),
        matrices=tuple(shape for layer in layers for shape in layer.matrices),
        dense=plan.mesh.dense_replicas,
        expert=plan.mesh.expert_replicas,
        sharded=plan.scenario.parallel.zero >= 1,
        attentions=sum(1 for layer in layers if layer.heads),
        heads=sum(layer.heads for layer in layers),
        query_key=sum(layer.query_key for layer in layers),
    )


class _Closing:
    """Collects the closing steps of one stage, one after another."""

    def __init__(self, plan: Plan, coster: Coster) -> None:
        self.plan, self.coster = plan, coster
        self.steps: list[Step] = []
        self.ready: list[int | None] = []

    def add(
        self, name: str, kind: CollectiveKind, size: float, group: Group, chunk: int | None = None
    ) -> None:
        """Add a collective, unless its group is this rank alone or there is nothing to move."""
        if size == 0 or self.coster.placements[group].size == 1:
            return
        flow, delay = self.coster.collective(kind, size, group)
        self._append(Step(name, DATA, delay, self._after(chunk), flow, group), chunk)

    def wait(self) -> None:
        """What follows waits for the gradients that the backward passes reduce."""
        self._append(Step("gradients_reduced", DATA, 0, ()), None)

    def collectives(
        self, name: str, kind: CollectiveKind, weights: Weights, width: int, chunk: int | None
    ) -> None:
        """Add a collective over the replicas of the dense weights, and one over those of the
        experts."""
        self.add(name, kind, (weights.replicated + weights.tensor) * width, "data", chunk)
        self.add(name, kind, weights.expert * width, "expert_data", chunk)

    def exchanges(self, sent: Iterable[Sent]) -> None:
        """Add collectives of the optimizer's own."""
        for one in sent:
            group: Group = "data" if one.holders == "dense" else "expert_data"
            self.add(one.name, one.kind, one.bytes, group)

    def maxima(self, maxima: Maxima) -> None:
        """Add small all-reduces over the replicas of dense weights, one after another."""
        replicas = self.coster.placements["data"]
        if maxima.count == 0 or replicas.size == 1:
            return
        flow = traffic("all_reduce", maxima.bytes, replicas)
        _, delay = self.coster.agree(replicas)
        step = Step(maxima.name, DATA, maxima.count * delay, self._after(None), flow, "data")
        self._append(step, None)

    def embedding(self, held: int) -> None:
        """First and last stage add up the gradients of their copies of a tied embedding (Narayanan
        et al. 2021), each rank the part that it has: one of `held`."""
        model = self.plan.scenario.model
        size = model.vocab * model.hidden / self.plan.mesh.tensor / held * GRADIENT_BYTES
        edges = Placement(2, 2 if self.plan.mesh.ranks <= self.plan.mesh.gpus_per_node else 1)
        flow, delay = self.coster.priced(traffic("all_reduce", size, edges))
        self._append(
            Step("embedding_gradients", DATA, delay, self._after(None), flow, "embedding"), None
        )

    def gradient_norm(self) -> None:
        """All ranks agree on the gradient norm, so that all clip alike; nobody updates before."""
        ranks, node = self.plan.mesh.ranks, self.plan.mesh.gpus_per_node
        flow, delay = self.coster.agree(Placement(ranks, min(ranks, node)))
        self._append(Step("gradient_norm", DATA, delay, self._after(None), flow, "world"), None)

    def compute(self, works: Iterable[tuple[OpClass, Work]]) -> None:
        """Add kernels of the optimizer."""
        scenario = self.plan.scenario
        gpu = scenario.cluster.node.gpu
        time = sum(seconds(kind, work, gpu, scenario.calibration) for kind, work in works)
        self._append(Step("optimizer", COMPUTE, nanoseconds(time), self._after(None)), None)

    def _after(self, chunk: int | None) -> tuple[int, ...]:
        """Reductions of chunks wait for their chunk only (and, in order, for their stream); what
        follows waits for all before."""
        return () if chunk is not None or not self.steps else (len(self.steps) - 1,)

    def _append(self, step: Step, chunk: int | None) -> None:
        self.steps.append(step)
        self.ready.append(chunk)
