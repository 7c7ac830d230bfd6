"""The vocabulary of the arithmetic: what a layer does to one micro-batch on one rank, before anything costs seconds.

A layer is a sequence of `Op` (kernels) and `Exchange` (collectives inside the layer), in forward order. The backward pass
walks the same sequence in reverse. All numbers are per rank, after sharding, for one micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OpClass = Literal["gemm", "grouped_gemm", "attention", "bandwidth"]
"""Classes of kernels; a calibration profile has an efficiency for each."""

CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
Group = Literal["tensor", "expert"]


@dataclass(frozen=True, slots=True)
class Work:
    """What some kernels do: FLOP on the tensor cores, bytes of HBM traffic (read + written), and how many are launched."""

    flop: float = 0.0
    bytes: float = 0.0
    kernels: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.flop + other.flop, self.bytes + other.bytes, self.kernels + other.kernels)


@dataclass(frozen=True, slots=True)
class Op:
    """One named operation: its forward work, the backward work for the input's gradient (`backward`) and for the weight's
    (`weight`), the bytes it keeps for its backward pass (`saved`), and the bytes of its output while it runs (`output`)."""

    name: str
    kind: OpClass
    forward: Work
    backward: Work
    weight: Work = Work()
    saved: float = 0.0
    output: float = 0.0


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective inside a layer. `bytes` is the full payload per rank: the whole tensor for all-reduce, the gathered tensor
    for all-gather, the unreduced tensor for reduce-scatter, everything the rank sends (its own share included) for
    all-to-all. `None` where a direction needs none. `saved` as for an op."""

    name: str
    group: Group
    bytes: float
    forward: CollectiveKind | None
    backward: CollectiveKind | None
    saved: float = 0.0


Item = Op | Exchange


@dataclass(frozen=True, slots=True)
class Shape:
    """The micro-batch and the sharding that a layer sees on one rank."""

    sequences: int
    sequence: int
    tensor: int = 1
    expert: int = 1
    sequence_parallel: bool = False
    flash: bool = True

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch."""
        return self.sequences * self.sequence


@dataclass(frozen=True, slots=True)
class Weights:
    """Parameters by how they shard: `replicated` over all ranks of a stage, `tensor` cut by the tensor degree, `expert` cut
    over expert ranks. Of each, `*_matrices` are those an optimizer for matrices (Muon) takes."""

    replicated: int = 0
    tensor: int = 0
    expert: int = 0
    replicated_matrices: int = 0
    tensor_matrices: int = 0
    expert_matrices: int = 0

    @property
    def total(self) -> int:
        """All parameters."""
        return self.replicated + self.tensor + self.expert

    def __add__(self, other: Weights) -> Weights:
        return Weights(
            self.replicated + other.replicated,
            self.tensor + other.tensor,
            self.expert + other.expert,
            self.replicated_matrices + other.replicated_matrices,
            self.tensor_matrices + other.tensor_matrices,
            self.expert_matrices + other.expert_matrices,
        )


@dataclass(frozen=True, slots=True)
class Layer:
    """One position of the model: `embedding`, `dense`, `moe` or `head`."""

    kind: Literal["embedding", "dense", "moe", "head"]
    items: tuple[Item, ...]
    weights: Weights
    input_bytes: float
    """Bytes of the layer's input on this rank: what full recomputation keeps."""
