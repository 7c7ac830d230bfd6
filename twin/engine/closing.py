"""How a step opens and closes: gradients reduced over replicas, their norm agreed, the update, the
weights.

The step closes as ZeRO-1 does (Rajbhandari et al. 2020, section 5): gradients of a chunk are
reduce-scattered over its replicas as soon as its last backward pass is done, or with
`overlap_grad_reduce` off behind all passes (weights that sequence parallelism feeds with slices of
the sequence also over the tensor ranks), the gradient norm is agreed by all ranks, the optimizer
updates its shard, and the new weights are all-gathered. From ZeRO-2 on, and where a chunk has
buckets (`twin.engine.buckets`), backward passes have reduced the gradients already; under ZeRO-3
the next forward gathers weights as it goes. With `overlap_param_gather` that all-gather opens the
next step instead (`opening`).

What the host keeps of the states is updated bucket by bucket behind the rest
(`twin.planning.offload`): copies in both directions, the update on the device, and that of the
host's cores run beside each other, each in order. It begins with the update, not earlier, as
`optimizer.step()` does: copies under the last backward would need memory that activations still
have. Collectives of the optimizer are not cut into buckets. While the host's cores update, the
compute stream has nothing else to do, and that time is the optimizer's.

With `overlap_param_gather` the all-gather of ZeRO-1 and 2 opens the next step (Megatron-LM's flag
of that name): chunk by chunk in the order of the first forwards, each of which waits for its own. A
step is then as long as any other in a run: the first one has nothing to gather, which is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Final, TypeAlias

from twin.arch.kernels import COUNT
from twin.arch.ops import CollectiveKind, Layer, OpClass, Weights, Work
from twin.collectives.base import Traffic
from twin.engine.buckets import gathered, new_weights, reduced
from twin.engine.cost_model import CostModel, nanoseconds
from twin.engine.host import COLLECTED, ISSUE, NAME
from twin.engine.program import COMPUTE, DATA, FROM_HOST, HOST, TO_HOST, Group, Step, Template
from twin.network.links import capacity, latency, sharers
from twin.network.placement import Placement
from twin.optimizers.base import Phase, Sent, Share, dense_weights, squares
from twin.planning.chunks import chunk_map_of
from twin.planning.memory import shards
from twin.planning.offload import buckets, host_phases, on_device, share_of
from twin.planning.types import Chunk, Plan
from twin.scenario import Scenario

AGREEMENT: Final = "gradient_norm"
"""Of the step in which ranks agree on it."""
Close: TypeAlias = tuple[Template, tuple[int | None, ...]]
"""The closing steps of a stage, and the chunk whose last backward releases each."""


def finishes(plan: Plan, costs: CostModel) -> tuple[Close, ...]:
    """How every stage closes; stages whose chunks hold the same layers close alike."""
    made: dict[object, Close] = {}
    found: list[Close] = []
    for stage in range(plan.mesh.pipeline):
        chunks = _in_order(plan, stage)
        # Layers of one kind are one shared object.
        held = tuple((tuple(map(id, chunk.layers)), chunk.weights) for chunk in chunks)
        key = held, _shares_embedding(plan, stage)
        if key not in made:
            made[key] = closed(plan, costs, chunks, shared=key[1])
        steps, ready = made[key]
        found.append((steps, tuple(None if at is None else chunks[at].index for at in ready)))
    return tuple(found)


def delayed(close: Close, waited_ns: int) -> Close:
    """The closing steps, and behind all of them what ranks wait for garbage collections."""
    steps, ready = close
    if not waited_ns:
        return close
    last = {step.stream: place for place, step in enumerate(steps)}
    step = Step(COLLECTED, COMPUTE, waited_ns, tuple(last.values()))
    return (*steps, step), (*ready, None)


def opening(plan: Plan, costs: CostModel, stage: int) -> tuple[Template, tuple[int, ...]]:
    """The opening steps of a stage, and the chunk whose first forward waits for each."""
    parallel = plan.scenario.parallel
    if not parallel.overlap_param_gather or parallel.zero not in (1, 2):
        return (), ()
    steps: list[Step] = []
    chunks: list[int] = []
    for chunk in _in_order(plan, stage):
        if gathered(plan, chunk):
            continue
        for group, size in new_weights(plan, chunk.layers, chunk.weights).items():
            if size == 0 or costs.placements[group].size == 1:
                continue
            flow, delay = costs.collective("all_gather", size, group)
            sms = costs.calibration.collective_sms
            steps.append(Step("all_gather_weights", DATA, delay, (), flow, group, sms=sms))
            chunks.append(chunk.index)
    return tuple(steps), tuple(chunks)


def _in_order(plan: Plan, stage: int) -> list[Chunk]:
    """The chunks of a stage in the order of the model's parts, so that stages which hold copies of
    each other agree on it. By first layer they would not where the first part has no layer."""
    part_of = chunk_map_of(plan.scenario).part_of
    own = (chunk for chunk in plan.chunks if chunk.stage == stage)
    return sorted(own, key=lambda chunk: part_of[chunk.index])


def _shares_embedding(plan: Plan, stage: int) -> bool:
    """Whether the stage has one of two copies of a tied embedding. Where the schedule holds copies
    of parts, either end holds both, and its mirror, too."""
    mesh = plan.mesh
    ends = mesh.pipeline > 1 and stage in (0, mesh.pipeline - 1)
    return ends and mesh.copies == 1 and plan.scenario.model.embedding_twice


def closed(plan: Plan, costs: CostModel, chunks: Sequence[Chunk], *, shared: bool = False) -> Close:
    """The closing steps of a stage with these chunks, and which of them releases each step, by its
    place; `shared`: with one of two copies of a tied embedding."""
    closing = _Closing(plan, costs)
    zero = plan.scenario.parallel.zero
    total = sum((chunk.weights for chunk in chunks), Weights())
    layers = [layer for chunk in chunks for layer in chunk.layers]
    width = plan.scenario.train.sent_bytes
    if zero < 2 and not any(reduced(plan, chunk) for chunk in chunks):
        kind: CollectiveKind = "reduce_scatter" if zero else "all_reduce"
        early = plan.scenario.parallel.overlap_grad_reduce
        for place, chunk in reversed(list(enumerate(chunks))):
            after = place if early else None
            closing.collectives(f"{kind}_gradients", kind, chunk.weights, width, after)
    else:
        closing.wait()
    held, _ = shards(plan.scenario, plan.mesh, 2)
    if plan.scenario.parallel.sequence_parallel:
        # These weights have seen only the rank's slice of the sequence (Megatron-LM does the same).
        size = total.replicated * width / held
        closing.add("replicated_gradients", "all_reduce", size, "tensor")
    if shared:
        closing.embedding(held)
    closing.update(share_of(plan.scenario, plan.mesh, chunks))
    if zero in (1, 2) and not plan.scenario.parallel.overlap_param_gather:
        for group, size in new_weights(plan, layers, total).items():
            closing.add("all_gather_weights", "all_gather", size, group)
    closing.loads(layers)
    closing.host(layers)
    return tuple(closing.steps), tuple(closing.ready)


def _casts(scenario: Scenario, share: Share) -> tuple[tuple[OpClass, Work], ...]:
    """Casts of all gradients of a rank before they are reduced, and of its shard behind, where they
    travel in other numbers. From ZeRO-2 on the copies of backward passes do that."""
    train = scenario.train
    if train.sent_bytes == train.gradient_bytes or scenario.parallel.zero > 1:
        return ()
    whole = dense_weights(share.weights) + share.weights.expert
    moved = (train.gradient_bytes + train.sent_bytes) * (whole + share.learned)
    return (("cast", Work(0.0, float(moved), 2)),)


def _after(step: Step, after: tuple[int, ...]) -> Step:
    """The step behind others, where it is behind none yet."""
    return Step(step.name, step.stream, step.duration_ns, after, step.traffic)


def closing_ns(steps: Template, capacity: Mapping[str, float]) -> tuple[float, float]:
    """Nanoseconds of closing steps that have their links to themselves: behind the one in which
    ranks agree on the gradient norm, for which every rank waits, and up to its end."""
    ends: list[tuple[float, float]] = []
    agreed = next((at for at, step in enumerate(steps) if step.name == AGREEMENT), len(steps))
    for place, step in enumerate(steps):
        time = step.alone_ns(capacity)
        late, whole = (max((ends[at][n] for at in step.after), default=0.0) for n in (0, 1))
        ends.append((late + time if place > agreed else 0.0, whole + time))
    late, whole = (max(column) for column in zip(*ends, strict=True))
    return late, whole - late


class _Closing:
    """Collects the closing steps of one stage, one after another."""

    def __init__(self, plan: Plan, costs: CostModel) -> None:
        self.plan, self.costs = plan, costs
        self.steps: list[Step] = []
        self.ready: list[int | None] = []
        self.last: tuple[int, ...] = ()
        """What the next step waits for."""
        self.agreed: int | None = None
        """The step in which ranks agree on the gradient norm."""

    def add(
        self, name: str, kind: CollectiveKind, size: float, group: Group, chunk: int | None = None
    ) -> None:
        """Add a collective, unless its group is this rank alone or there is nothing to move."""
        if size == 0 or self.costs.placements[group].size == 1:
            return
        flow, delay = self.costs.collective(kind, size, group)
        sms = self.costs.calibration.collective_sms
        step = Step(name, DATA, delay, self._after(chunk), flow, group, sms=sms)
        self._append(step, chunk)

    def update(self, share: Share) -> None:
        """Add what happens once gradients are summed: their norm, the optimizer's step."""
        scenario = self.plan.scenario
        update = scenario.train.optimizer.step(share)
        here = update
        if scenario.memory.states_on_host:
            here = scenario.train.optimizer.step(on_device(scenario, share))
        self.compute((*_casts(scenario, share), ("gradient_norm", squares(share.learned))))
        self.gradient_norm()
        self.exchanges(update.before)
        if update.maxima is not None:
            self.small(update.maxima.name, update.maxima.bytes)
        self.compute(here.works)
        self.through_host(host_phases(scenario, share))
        self.exchanges(update.after)

    def wait(self) -> None:
        """What follows waits for the gradients that the backward passes reduce."""
        self._append(Step("gradients_reduced", DATA, 0, ()), None)

    def collectives(
        self, name: str, kind: CollectiveKind, weights: Weights, width: int, chunk: int | None
    ) -> None:
        """Add a collective over the replicas of the dense weights, and one over those of the
        experts."""
        self.add(name, kind, dense_weights(weights) * width, "data", chunk)
        self.add(name, kind, weights.expert * width, "expert_data", chunk)

    def exchanges(self, sent: Iterable[Sent]) -> None:
        """Add collectives of the optimizer's own."""
        for one in sent:
            group: Group = "data" if one.holders == "dense" else "expert_data"
            self.add(one.name, one.kind, one.bytes, group)

    def loads(self, layers: Iterable[Layer]) -> None:
        """The ranks of a stage agree on how many rows went to each expert in the step, since biases
        answer to all of them (DeepSeek-V3, arXiv:2412.19437, section 2.1.2), for all layers in
        one; moving the biases is nothing."""
        biases = sum(layer.weights.buffers for layer in layers)
        self.small("expert_loads", COUNT * biases)

    def host(self, layers: Sequence[Layer]) -> None:
        """What the host does for a step beside its passes, once the gradient norm has come."""
        seconds = self.costs.host.step(layers)
        if seconds:
            after = (self.agreed,) if self.agreed is not None else self.last
            name, stream = (NAME, HOST) if self.costs.host.ahead else (ISSUE, COMPUTE)
            self._append(Step(name, stream, nanoseconds(seconds), after), None)

    def small(self, name: str, size: float) -> None:
        """Add an all-reduce of a few numbers over the replicas of dense weights."""
        replicas = self.costs.placements["data"]
        if size == 0 or replicas.size == 1:
            return
        flow = self.costs.flow("all_reduce", size, replicas)
        _, delay = self.costs.agree(replicas)
        self._append(Step(name, DATA, delay, self._after(None), flow, "data"), None)

    def embedding(self, held: int) -> None:
        """First and last stage add up the gradients of their copies of a tied embedding (Narayanan
        et al. 2021), each rank the part that it has: one of `held`."""
        model = self.plan.scenario.model
        size = model.vocab * model.hidden / self.plan.mesh.tensor / held
        size *= self.plan.scenario.train.sent_bytes
        edges = Placement(2, 2 if self.plan.mesh.ranks <= self.plan.mesh.gpus_per_node else 1)
        flow, delay = self.costs.priced(self.costs.flow("all_reduce", size, edges))
        self._append(
            Step("embedding_gradients", DATA, delay, self._after(None), flow, "embedding"), None
        )

    def gradient_norm(self) -> None:
        """All ranks agree on the gradient norm, so that all clip alike; nobody updates before. Of a
        staggered step only those of a stage do; what stages tell each other later is a few bytes
        beside passes (Qi et al. 2023, section 4), which is left out."""
        mesh, node = self.plan.mesh, self.plan.mesh.gpus_per_node
        ranks = mesh.stage_ranks if self.plan.scenario.parallel.schedule.staggered else mesh.ranks
        flow, delay = self.costs.agree(Placement(ranks, min(ranks, node)))
        self._append(Step(AGREEMENT, DATA, delay, self._after(None), flow, "world"), None)
        self.agreed = len(self.steps) - 1

    def compute(self, works: Iterable[tuple[OpClass, Work]]) -> None:
        """Add kernels of the optimizer."""
        time = nanoseconds(self._seconds(works))
        self._append(Step("optimizer", COMPUTE, time, self._after(None)), None)

    def through_host(self, phases: Sequence[Phase]) -> None:
        """Add the update of what the host keeps, in buckets: a part of a bucket waits for the part
        before it, and in order for the bucket before; a bucket begins when an earlier one has left
        its place on the device. What follows waits for the new weights, not for the last copy of
        states to the host."""
        number, parts, begun = buckets(phases), range(len(phases)), self.last
        made = [self._part(phase, number) for phase in phases]
        new = max((part for part in parts if phases[part].place != "to_host"), default=0)
        ends: dict[tuple[int, int], int] = {}
        # As far along as each can be, since streams are in order.
        for bucket, part in sorted(product(range(number), parts), key=sum):
            before = (bucket, part - 1) if part else (bucket - len(phases), parts[-1])
            after = (ends[before],) if before in ends else begun
            ends[bucket, part] = len(self.steps)
            self._append(_after(made[part], after), None)
        if phases:
            self.last = (ends[number - 1, new],)

    def _part(self, phase: Phase, number: int) -> Step:
        """One bucket's share of a part of the update."""
        cluster, size = self.plan.scenario.cluster, phase.bytes / number
        begin = nanoseconds(latency(cluster, "pcie"))
        match phase.place:
            case "to_host":
                flow = Traffic(to_host_bytes=size)
                return Step("states_to_host", TO_HOST, begin, (), flow)
            case "from_host":
                flow = Traffic(from_host_bytes=size)
                return Step("states_from_host", FROM_HOST, begin, (), flow)
            case "host":
                time = size * sharers(cluster, "dram") / capacity(cluster, "dram")
            case "device":
                time = self._seconds(phase.works) / number
        return Step("optimizer", COMPUTE, nanoseconds(time), ())

    def _seconds(self, works: Iterable[tuple[OpClass, Work]]) -> float:
        return sum(self.costs.prices(kind, work, False).seconds for kind, work in works)

    def _after(self, chunk: int | None) -> tuple[int, ...]:
        """Reductions of chunks wait for their chunk only (and, in order, for their stream); what
        follows waits for all before."""
        return () if chunk is not None else self.last

    def _append(self, step: Step, chunk: int | None) -> None:
        self.last = (len(self.steps),)
        self.steps.append(step)
        self.ready.append(chunk)
