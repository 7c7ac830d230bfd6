"""A step's tensors through PyTorch's allocator: what it holds beside those that are alive.

A rank of a stage takes and gives the tensors of two steps in order: weights, gradients and buffers;
per pass and layer what its operations write and keep, what is computed again, gradients; momentum
and variance in the first update, which is where PyTorch makes them. So states lie in what the first
step's activations left, and a large tensor of the second step finds holes that are too small.
`cached_bytes` is what is held beyond the most that is alive; how much is alive, the ledger says
(`twin.planning.memory`).

Megatron-LM keeps weights and gradients in one buffer each. Under torch's `fully_shard` the tensors
in which parameters arrive and the fp32 copies of gradients that leave have streams, and so memory,
of their own (`_fsdp_collectives.py`). An output that an operation keeps is one tensor.

Under FSDP1 (`software.frees_late`) the host gathers a layer while the device is one behind: the
running layer, the next, and one whose memory waits for the device. The last is reserved only.

Left out: other tensors that streams use for a while longer (`record_stream`), which makes ranks of
one run differ by some percent; temporaries of the update.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from twin.arch.ops import Layer, Op
from twin.planning.allocator import Block, CachingAllocator
from twin.planning.columns import columns_of
from twin.planning.footprint import (
    GRADIENT_BYTES,
    PARAMETER_BYTES,
    footprints,
    kept_by_op,
    late_bytes,
)
from twin.planning.types import Chunk, DeviceMemory, Plan
from twin.planning.walk import enough_microbatches, walk_columns
from twin.schedules.base import Action

STEPS: Final = 2
"""Steps that are replayed: from the second on, states are there."""
MOST_PASSES: Final = 4000
"""Passes of layers that are replayed per step at most; a longer step is cut off there."""
STATES: Final = ("optimizer_dense", "optimizer_expert")
USER_BUFFERS: Final = "user_buffers"
"""The category of what Transformer Engine's userbuffers take of the driver."""
HOLES: Final = "fragmentation"
"""The entry of a GPU's reserve for what an allocator cannot give back."""
_BUFFERS: Final = (
    "pipeline_buffers",
    "expert_buffers",
    "tensor_buffers",
    "context_buffers",
    "gradient_stand_ins",
    "optimizer_buffers",
)


def cached_bytes(plan: Plan, stage: int) -> float:
    """Bytes that the allocator of one rank of a stage holds and no tensor has, at its fullest."""
    software = plan.scenario.software
    rank = _Rank(plan, stage, CachingAllocator(software is not None and software.expandable))
    rank.begin()
    actions = _actions(plan, stage)
    for _ in range(STEPS):
        for action in actions:
            rank.run(action)
        rank.update()
    return float(rank.memory.most_reserved - rank.memory.most_allocated)


def device_memory(plan: Plan) -> DeviceMemory:
    """The fullest rank's memory as PyTorch and the driver count it. Buffers that libraries share
    with the network are no tensors. Where the device has no room for all that the allocator would
    hold, it gives back what no tensor has."""
    memory, peak = plan.memory, plan.memory.peak
    shared = peak.categories.get(USER_BUFFERS, 0.0)
    outside = shared + sum(size for name, size in memory.reserve.items() if name != HOLES)
    allocated = peak.peak_bytes - shared
    wanted = allocated + cached_bytes(plan, peak.stage)
    reserved = max(allocated, min(wanted, memory.capacity - outside))
    return DeviceMemory(allocated, reserved, reserved + outside, wanted - reserved)


def _actions(plan: Plan, stage: int) -> Sequence[Action]:
    """The stage's actions up to its fullest moment."""
    parallel, shape = plan.scenario.parallel, (plan.mesh.pipeline, plan.scenario.parallel.virtual)
    enough = enough_microbatches(parallel.schedule, *shape, plan.microbatches)
    order = columns_of(parallel.schedule, *shape, enough)[stage]
    needs = footprints(plan.chunks)
    last = walk_columns(order, needs).fullest
    most = max(len(chunk.layers) for chunk in plan.chunks if chunk.stage == stage)
    count = min(last + 2, len(order), max(2, MOST_PASSES // max(1, most)))
    return [order.action(at) for at in range(count)]


@dataclass(slots=True)
class _Kept:
    """What a layer keeps for its backward pass: blocks by operation."""

    blocks: dict[str, Block] = field(default_factory=dict[str, Block])


@dataclass(slots=True)
class _Rank:
    """A rank of a stage, with the blocks that its tensors have."""

    plan: Plan
    stage: int
    memory: CachingAllocator
    waiting: dict[tuple[int, int], list[_Kept]] = field(
        default_factory=dict[tuple[int, int], list[_Kept]]
    )
    late: dict[tuple[int, int], list[Block]] = field(
        default_factory=dict[tuple[int, int], list[Block]]
    )
    sharded: dict[int, list[Block]] = field(default_factory=dict[int, list[Block]])
    """Gradients that stay until the update, by chunk."""
    leaving: list[Block] = field(default_factory=list[Block])
    """Fp32 copies of gradients on their way to other ranks."""
    has_states: bool = False
    beside: list[Layer] = field(default_factory=list[Layer])
    """Layers of a forward pass that run beside those of the next backward pass, a pair."""
    beside_key: tuple[int, int] = (0, 0)

    def begin(self) -> None:
        """Weights, gradients and buffers that stand for the whole run."""
        held = self.plan.memory.stages[self.stage].categories
        if self.shards:
            for _, layer in self.layers:
                share = held.get("parameters", 0.0) * layer.used.total / self.weights(used=True)
                self.take_pieces(layer, share)
            self.memory.take(held.get("data_buffers", 0.0) / 2, "gather")
            self.memory.take(held.get("data_buffers", 0.0) / 2, "gather")
        else:
            # Modules have their own weights until these are copied into one buffer.
            share = held.get("parameters", 0.0) / self.weights(used=True)
            made = [self.take_pieces(one, share * one.used.total) for _, one in self.layers]
            for name in ("gradients", "parameters", "data_buffers"):
                if held.get(name):
                    self.memory.take(held[name])
            for blocks in made:
                self.give(blocks)
            self.give([self.memory.take(size, "gather") for size in self.waiting_gathers()])
            self.take_states(1)
        for name in _BUFFERS:
            if held.get(name):
                self.memory.take(held[name])

    def waiting_gathers(self) -> list[float]:
        """Bytes of a gathered layer that the device has not passed while others are gathered."""
        scenario = self.plan.scenario
        late = scenario.software is not None and scenario.software.frees_late
        if scenario.parallel.zero < 3 or not late:
            return []
        return [PARAMETER_BYTES * max((one.used.total for _, one in self.layers), default=0)]

    def run(self, action: Action) -> None:
        """One pass of a chunk."""
        chunk, key = self.plan.chunks[action.chunk], (action.chunk, action.microbatch)
        match action.kind:
            case "F" if action.paired:
                self.waiting[key], self.beside = [], list(chunk.layers)
                self.beside_key = key
            case "F":
                self.waiting[key] = [self.forward(layer) for layer in chunk.layers]
            case "B" | "I":
                self.backward(chunk, self.waiting.pop(key))
                if action.kind == "I":
                    sizes = [late_bytes(layer) for layer in chunk.layers]
                    self.late[key] = [self.memory.take(size) for size in sizes if size]
            case "W":
                self.give(self.late.pop(key))

    def update(self) -> None:
        """What waits is gone, states are there, and so are temporaries of their size."""
        for kept in self.waiting.values():
            for layer in kept:
                self.give(layer.blocks.values())
        for blocks in (*self.late.values(), *self.sharded.values(), self.leaving):
            self.give(blocks)
        self.waiting, self.late, self.sharded, self.leaving = {}, {}, {}, []
        self.beside = []
        if self.has_states:
            return
        self.has_states = True
        self.take_states(2)

    def take_states(self, tensors: int) -> None:
        """So many tensors of optimizer states for every weight."""
        held = self.plan.memory.stages[self.stage].categories
        size = sum(held.get(name, 0.0) for name in STATES) / (2 if self.shards else 3)
        for _, layer in self.layers:
            for _ in range(tensors):
                self.take_pieces(layer, size * layer.weights.total / self.weights())

    def forward(self, layer: Layer) -> _Kept:
        """A layer's operations in order: each writes beside its input, and some output is kept."""
        gathered = self.gathered(layer)
        sizes, kept = kept_by_op(layer, layer.policy), _Kept()
        before: Block | None = None
        if "layer_input" in sizes:
            kept.blocks["layer_input"] = self.memory.take(sizes.pop("layer_input"))
        for item in layer.items:
            size = item.output if isinstance(item, Op) else 0.0
            own = sizes.pop(item.name, 0.0)
            if own:
                kept.blocks[item.name] = self.memory.take(own)
            made = self.memory.take(size) if size > own else None
            if made or own:
                self.give([before] if before else [])
                before = made
        self.give([before] if before else [])
        self.give(gathered)
        return kept

    def backward(self, chunk: Chunk, kept: list[_Kept]) -> None:
        """The layers in reverse, each with the gradient that the one behind it left."""
        first = chunk.index not in self.sharded
        own: list[Block] = []
        for layer, held in zip(reversed(chunk.layers), reversed(kept), strict=True):
            self.fill(1)
            gathered, again = self.gathered(layer), list(self.made_again(layer, held))
            gradients = self.gradients(layer, held)
            self.give(again)
            self.give(gathered)
            self.leave(layer, gradients)
            if first and self.shards:
                size = self.shard(layer)
                own += self.take_pieces(layer, size) if size else []
        self.fill(len(self.beside))
        if first:
            self.sharded[chunk.index] = own

    def fill(self, layers: int) -> None:
        """Runs so many layers of the pair's forward pass."""
        for layer in self.beside[:layers]:
            self.waiting[self.beside_key].append(self.forward(layer))
        self.beside = self.beside[layers:]

    def made_again(self, layer: Layer, kept: _Kept) -> Iterator[Block]:
        """What is computed again, or unpacked, for a layer's backward pass."""
        for item in layer.items:
            held = kept.blocks.get(item.name)
            if item.saved > (held.size if held else 0.0):
                yield self.memory.take(item.saved)

    def gradients(self, layer: Layer, kept: _Kept) -> list[Block]:
        """Runs the operations in reverse; gives what was kept, and returns gradients of weights
        that other ranks have a part of."""
        ops = [item for item in layer.items if isinstance(item, Op)]
        with_weights = sum(op.weight.kernels > 0 for op in ops)
        made: list[Block] = []
        behind: Block | None = None
        for op in reversed(ops):
            mine = self.memory.take(op.output) if op.output else None
            if op.weight.kernels and self.shards:
                made.append(self.memory.take(PARAMETER_BYTES * layer.learned.total / with_weights))
            if mine:
                self.give([behind] if behind else [])
                behind = mine
            if op.name in kept.blocks:
                self.memory.give(kept.blocks.pop(op.name))
        self.give([behind] if behind else [])
        self.give(kept.blocks.values())
        kept.blocks = {}
        return made

    def leave(self, layer: Layer, gradients: list[Block]) -> None:
        """Gradients of a layer are reduced from an fp32 copy, which stays until the next's."""
        if not gradients:
            return
        self.give(self.leaving)
        size = GRADIENT_BYTES * layer.learned.total
        self.leaving = [self.memory.take(size, "reduce")] if size else []
        self.give(gradients)

    def gathered(self, layer: Layer) -> list[Block]:
        """A layer's parameters, copied out of what arrived."""
        return self.take_pieces(layer, PARAMETER_BYTES * layer.used.total) if self.shards else []

    def shard(self, layer: Layer) -> float:
        """Bytes of the rank's own gradients of a layer."""
        held = self.plan.memory.stages[self.stage].categories
        return held.get("gradients", 0.0) * layer.learned.total / max(1, self.weights())

    def take_pieces(self, layer: Layer, size: float) -> list[Block]:
        """As many tensors as the layer has matrices, of so many bytes in all."""
        whole = sum(one.weights for one in layer.matrices)
        if not whole:
            return [self.memory.take(size)] if size else []
        return [self.memory.take(size * one.weights / whole) for one in layer.matrices if size]

    def give(self, blocks: Iterable[Block]) -> None:
        """Frees blocks."""
        for block in blocks:
            self.memory.give(block)

    def weights(self, *, used: bool = False) -> float:
        """Weights that the rank's layers learn, or use."""
        own = (layer.used.total if used else layer.weights.total for _, layer in self.layers)
        return max(1, sum(own))

    @property
    def shards(self) -> bool:
        """Parameters are sharded as torch's `fully_shard` does it."""
        return self.plan.scenario.memory.fully_shard

    @property
    def layers(self) -> list[tuple[Chunk, Layer]]:
        """All layers of the stage, with their chunks."""
        own = [chunk for chunk in self.plan.chunks if chunk.stage == self.stage]
        return [(chunk, layer) for chunk in own for layer in chunk.layers]
