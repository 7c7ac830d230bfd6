"""A weight update: how the weights that training made reach the inference engines, as the
middleware of Kimi K2 does it (report, arXiv:2507.20534, appendix G;
MoonshotAI/checkpoint-engine)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from twin.errors import FieldError
from twin.spec.base import Bytes, BytesPerSecond, Count, Duration, Seconds, Share, Spec


class UpdaterSpec(Spec):
    """What the software of an update takes beside its bytes: one measured stack of middleware and
    inference engine."""

    name: str
    """what reports call the stack"""
    gpu: str
    """the GPU that it was measured on"""
    software: str
    """middleware and inference engine that it was measured with"""
    date: str
    """when it was measured"""
    nics: Count
    """NICs of a node that one broadcast keeps busy"""
    efficiency: Share
    """share of these NICs' rate that a broadcast reaches"""
    hop: Seconds
    """per bucket and rank: it reaches one rank after another, and all meet"""
    per_tensor: Seconds
    """host time of the engine per tensor that it reloads"""
    per_layer: Seconds = 0.0
    """the same for each layer of the model, where every tensor is loaded by a call of its own,
    which looks all parameters up"""
    readers: Count | None = None
    """ranks of an instance that fetch buckets when it recovers, one after another; null: all, at
    once"""
    in_place: BytesPerSecond | None = None
    """at which trainers gather whole tensors, one by one, and hand them to engines on the same
    devices; null: buckets are broadcast to all"""
    gather: Duration
    """gathering what tensors there are, before an update"""
    regroup: Duration
    """making a new group of ranks and telling the network its memory, to recover"""

    def each_tensor(self, layers: int) -> float:
        """Seconds of an engine's host for one tensor of a model of so many layers."""
        return self.per_tensor + self.per_layer * layers


class ReplicaSpec(Spec):
    """The layout of one instance of the inference engine. Its experts are spread over all of its
    GPUs; norms, routers and low-rank projections are whole on each."""

    gpus: Count
    """GPUs of one instance"""
    tensor: Count | None = None
    """ranks that share each dense matrix; null: all of the instance"""

    @field_validator("tensor")
    @classmethod
    def _ranks_divide(cls, tensor: int | None, info: ValidationInfo) -> int | None:
        gpus: int | None = info.data.get("gpus")
        if tensor is not None and gpus is not None and gpus % tensor:
            message = f"{tensor} ranks that share a matrix do not divide an instance of {gpus} GPUs"
            raise FieldError("TW151", message, "write a number that divides `gpus`")
        return tensor

    @property
    def tensor_ranks(self) -> int:
        """Ranks that share each dense matrix."""
        return self.tensor or self.gpus


class StorageSpec(Spec):
    """Where a start reads the checkpoint from."""

    per_node: BytesPerSecond
    """what one node reads"""
    total: BytesPerSecond
    """what the storage delivers to all nodes together"""


class WeightUpdateSpec(Spec):
    """What is updated, from where, and by which pipeline.

    `update`: training has left a share of the weights in the host memory of each rank, and all
    engines take the new ones. `start`: all ranks read the checkpoint from storage once, together,
    and then do the same. `recover`: the ranks of one new instance read what others hold in host
    memory, while those go on serving.
    """

    event: Literal["update", "start", "recover"] = "update"
    """update: host copies to all engines; start: after reading from storage; recover: one instance
    alone, from the host copies of others"""
    precision: Literal["bf16", "fp8"]
    """numbers of the checkpoint's matrices; fp8: with an fp32 scale per 128 x 128"""
    replica: ReplicaSpec
    """one instance of the inference engine"""
    method: Literal["broadcast", "p2p"] = "broadcast"
    """broadcast: every rank receives all, and keeps what it needs; p2p: every rank is sent what it
    needs, by a map of both layouts"""
    source: Literal["host", "device"] = "host"
    """host: training has left the weights in hosts' memory; device: trainers send what is on their
    devices, with an update alone"""
    stages: Literal["two", "three"] = "two"
    """two: all ranks copy a bucket from the host, then broadcasts run beside reloads; three: copies
    from the host run beside both"""
    free_memory: Annotated[Bytes, Field(gt=0)]
    """device memory for the update's buffers, on the fullest GPU"""
    bucket: Annotated[Bytes, Field(gt=0)] = 8 * 2.0**30
    """most bytes of one bucket, unless a tensor is larger"""
    storage: StorageSpec | None = None
    """what a start reads from"""
    updater: UpdaterSpec
    """middleware and engine, as measured"""
