"""The Plan: what every rank holds, runs and sends, fully resolved from a scenario. Made by
`twin.planning`."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from twin.arch.ops import Layer, Weights
from twin.network.placement import Placement
from twin.scenario import Scenario
from twin.spec.memory import MemorySpec, StagePolicySpec


@dataclass(frozen=True, slots=True)
class Mesh:
    """The rank grid. Degrees multiply to the number of GPUs: tensor x context x data x pipeline.
    The ranks of a stage hold experts in a second grid: expert_tensor x expert x expert_data."""

    tensor: int
    expert: int
    data: int
    pipeline: int
    gpus_per_node: int
    order: tuple[str, ...]
    context: int = 1
    expert_tensor: int = 1
    copies: int = 1
    """Of each part of the model in one pipeline; a bidirectional schedule holds two, on mirrored
    stages."""
    context_heads: int = 1
    """Context ranks that exchange heads."""

    @property
    def stage_ranks(self) -> int:
        """Ranks of one stage."""
        return self.tensor * self.context * self.data

    @property
    def ranks(self) -> int:
        """Ranks in the run."""
        return self.stage_ranks * self.pipeline

    @property
    def dense_replicas(self) -> int:
        """Ranks that hold the same dense weights."""
        return self.context * self.data * self.copies

    @property
    def expert_replicas(self) -> int:
        """Ranks that hold the same experts."""
        return self.expert_data * self.copies

    @property
    def expert_data(self) -> int:
        """Ranks of a stage that hold the same experts: what expert and expert-tensor ranks
        leave."""
        return self.stage_ranks // (self.expert_tensor * self.expert)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One virtual stage: the layers it runs, in order, and its weights on one rank."""

    index: int
    stage: int
    layers: tuple[Layer, ...]
    weights: Weights
    first_layer: int
    """Index of the first transformer layer in this chunk (0-based), for display."""
    frozen: Weights = field(default_factory=Weights)
    """Beside `weights`: those that are used and not trained."""


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Device bytes on one rank of a stage at its peak, by category, and the moment of the peak; and
    what the rank has in host memory."""

    stage: int
    categories: dict[str, float]
    peak_bytes: float
    peak_moment: str
    in_flight: int
    """Chunk forwards whose activations are alive at the peak, on the device or the host."""
    kept_bytes: float = 0.0
    """Most activations that ever wait for their backward, wherever they are: what the device holds
    of them without offload."""
    host: dict[str, float] = field(default_factory=dict[str, float])
    """Bytes in host memory at its fullest moment, by category; empty without offload."""

    @property
    def host_bytes(self) -> float:
        """All of them."""
        return sum(self.host.values())


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory ledger of every stage against what the device exposes and the node has."""

    stages: tuple[StageMemory, ...]
    capacity: float
    reserve: dict[str, float]
    host: dict[str, float] = field(default_factory=dict[str, float])
    """Host bytes of all ranks of the fullest node, by category."""
    host_capacity: float = inf
    """Host memory of a node."""
    unique_bytes: float = 0.0
    """Parameters and gradients of the whole model, each once, however many ranks hold them."""

    @property
    def host_per_node(self) -> float:
        """All of them."""
        return sum(self.host.values())

    @property
    def peak(self) -> StageMemory:
        """The stage with the highest peak."""
        return max(self.stages, key=lambda s: s.peak_bytes)

    @property
    def budget(self) -> float:
        """Bytes for tensors: capacity minus reserve."""
        return self.capacity - sum(self.reserve.values())

    @property
    def fits_device(self) -> bool:
        """True when the highest peak is within the budget."""
        return self.peak.peak_bytes <= self.budget

    @property
    def fits_host(self) -> bool:
        """True when a node has room for what its ranks keep on the host."""
        return self.host_per_node <= self.host_capacity

    @property
    def fits(self) -> bool:
        """True when both hold."""
        return self.fits_device and self.fits_host


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Device bytes of the fullest rank at its fullest, counted in three ways."""

    allocated: float
    """Tensors that are alive (`torch.cuda.max_memory_allocated`)."""
    reserved: float
    """What the allocator holds for them (`torch.cuda.max_memory_reserved`)."""
    in_use: float
    """All of the device: with the CUDA context, libraries and their buffers (`nvidia-smi`)."""
    given_back: float = 0.0
    """What the allocator would hold beside that if the device had room: it frees segments and asks
    for others, which takes time."""


@dataclass(frozen=True, slots=True)
class Warning:
    """Something a reader must know before trusting a number."""

    code: str
    message: str


_ENDS = ("embedding", "mtp", "head")
"""Kinds of layers before and behind the transformer layers."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The resolved run."""

    scenario: Scenario
    mesh: Mesh
    chunks: tuple[Chunk, ...]
    microbatches: int
    placements: dict[str, Placement]
    """Of the groups in `twin.planning.mesh.GROUPS`: `data` are the replicas of dense weights,
    `expert_data` those of experts; pipeline neighbours under `pipeline`."""
    memory: Memory
    warnings: tuple[Warning, ...] = field(default=())

    @property
    def layers_per_part(self) -> tuple[int, ...]:
        """Transformer layers of each part of the model."""
        parallel = self.scenario.parallel
        chunk_map = parallel.schedule.chunk_map(parallel.pipeline, parallel.virtual)
        held = {
            part: sum(layer.kind not in _ENDS for layer in chunk.layers)
            for chunk, part in zip(self.chunks, chunk_map.part_of, strict=True)
        }
        return tuple(held[part] for part in range(chunk_map.parts))

    @property
    def policies(self) -> tuple[MemorySpec, ...]:
        """Each memory policy that some layer has."""
        return tuple(dict.fromkeys(one.policy for chunk in self.chunks for one in chunk.layers))

    @property
    def by_stage(self) -> tuple[StagePolicySpec, ...] | None:
        """The policies of stages, as `memory.by_stage` writes them, or of chunks where those of a
        stage differ; None where all are the same."""
        if len(self.policies) < 2:
            return None
        named = ("recompute", "fp8_store")
        own = [
            StagePolicySpec(
                **{name: getattr(policy, name) for name in named},
                offload=policy.activations_on_host,
            )
            for chunk in self.chunks
            for policy in [chunk.layers[0].policy if chunk.layers else self.scenario.memory]
        ]
        of_stage: dict[int, list[StagePolicySpec]] = {}
        for chunk, policy in zip(self.chunks, own, strict=True):
            of_stage.setdefault(chunk.stage, []).extend([policy] * bool(chunk.layers))
        if any(len(set(held)) > 1 for held in of_stage.values()):
            return tuple(own)
        return tuple(held[0] if held else own[0] for _, held in sorted(of_stage.items()))

    @property
    def uses_host(self) -> bool:
        """Whether anything waits in host memory."""
        return any(policy.offload for policy in self.policies)

    @property
    def runs_per_chunk(self) -> int:
        """Micro-batches that pass each chunk: all, or those of its direction where the stages hold
        copies."""
        return self.microbatches // self.mesh.copies
