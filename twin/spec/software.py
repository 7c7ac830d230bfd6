"""The software that trains: framework, version, and what its host does for every operation."""

from __future__ import annotations

from math import ceil, floor
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, Strict, ValidationInfo

from twin.errors import FieldError
from twin.spec.base import UNWRITTEN, Bytes, Flag, Seconds, Spec
from twin.spec.memory import Fp8Store, Offload, Recompute

Calls = Annotated[float, Field(ge=0, le=100_000)]
"""How often something is done; a mean."""
Items = Annotated[dict[str, Calls], Field(default_factory=dict[str, float])]
"""How often each item of `host.items` is done."""


class OperationSpec(Spec):
    """What the host does for one operation or exchange, counted in its program."""

    forward: Items
    """items forward: modules, operations, functions"""
    backward: Items
    """items for its gradients: nodes of autograd, hooks"""
    each_forward: Items
    """items forward for each expert of the rank; of a cast, for each of its kernels; of attention,
    for each block of queries"""
    each_backward: Items
    """the same for its gradients"""
    update: Items
    """items of each step for its weights: gradient norm, optimizer"""
    query_blocks: tuple[tuple[int, int], ...] = ()
    """queries of a block of attention, each behind the longest sequence that is cut so"""
    forward_kernels: Calls | None = None
    """kernels that run forward; null: as many as the operation counts"""
    backward_kernels: Calls | None = None
    """kernels that run for its gradients; null: as many as the operation counts"""


def _known(operations: dict[str, OperationSpec], info: ValidationInfo) -> dict[str, OperationSpec]:
    items: dict[str, float] = info.data.get("items") or {}
    for name, one in operations.items():
        counted = one.forward, one.backward, one.each_forward, one.each_backward, one.update
        for part in counted:
            strange = next((item for item in part if items and item not in items), None)
            if strange is not None:
                message = f"`{name}` counts `{strange}`, which is none of the items"
                raise FieldError("TW170", message, f"write one of: {', '.join(items)}")
    return operations


Operations = Annotated[
    dict[str, OperationSpec],
    Field(default_factory=dict[str, OperationSpec]),
    AfterValidator(_known),
]


class CollectorSpec(Spec):
    """Python's cyclic garbage collector, which stops the host thread while it walks the objects
    that may be part of a cycle."""

    interval: Annotated[int, Field(ge=0, le=10**6)] | None = None
    """steps between collections that all ranks do together; 0: none while training; null: automatic
    ones, of each rank when its own allocations ask for one; `train.gc_interval` wins"""
    objects: Annotated[float, Field(ge=0, le=1e9)]
    """objects that a collection walks: of modules and models, as long as the process lives"""
    object: Seconds
    """to walk one of them"""
    kept: Items
    """objects that each item forward keeps until its backward"""
    checkpointed: Annotated[float, Field(ge=0, le=100)] = 1.0
    """objects that a layer keeps that is computed again, over those of one that is not"""


class MessageSpec(Spec):
    """Processor time of a message between stages, where that is the processor of the thread that
    computes. A link hands over bytes in pieces, each of which wakes a thread: frames, or what comes
    in a fixed time where that is more of them, as network cards merge interrupts."""

    each: Seconds
    """of any message, whatever its size"""
    piece: Seconds
    """of each piece"""
    frame: Annotated[Bytes, Field(gt=0)]
    """payload of a frame: the least piece"""
    burst: Seconds
    """of the link's rate: the frames that come within it are one piece"""

    def seconds(self, size: float, rate: float) -> float:
        """Of so many bytes over a link of a rate, the mean of sender and receiver."""
        piece = self.frame * max(1, floor(self.burst * rate / self.frame))
        return self.each + self.piece * ceil(size / piece)


class HostThreadSpec(Spec):
    """The host thread of a rank: seconds per item on the CPU of an H100 server, and how often each
    operation does it."""

    items: dict[str, Seconds]
    """seconds of everything that is counted below"""
    call: Seconds
    """one framework call forward, with its launch, of an operation that `operations` does not
    name"""
    gradient: Seconds
    """the same of one kernel of its gradients"""
    collective: Seconds
    """one collective or message, through the framework's process group"""
    message: Annotated[MessageSpec | None, UNWRITTEN] = None
    """messages between stages, with `ahead: false`; null: they take no processor time"""
    sync: Seconds
    """from the device's arrival at a point that the host waits for until the next kernel runs"""
    ahead: Flag = True
    """the host issues operations while the device runs earlier ones; false: host and device are one
    thread, as on a CPU, so what issuing takes is added, and a kernel's launch is part of it: those
    of the calibration do not count"""
    slowness: Annotated[float, Strict(), Field(ge=0.1, le=1000)] = 1.0
    """time of the host over that of all that is counted: what the counts leave out; below 1 on a
    faster CPU"""
    rank_spread: Annotated[float, Field(ge=0, le=1)] = 0.0
    """standard deviation of the host's time for a layer over its mean, from pass to pass and from
    rank to rank: ranks that exchange wait for the slowest of them"""
    operations: Operations
    """counts by name of an operation or an exchange, or by an operation's kind"""
    each_microbatch: Items
    """items of each pass of a micro-batch beside its operations"""
    each_step: Items
    """items of each step beside its operations: data, logs, learning rates"""
    each_weight: Items
    """items of each step for each matrix that the rank trains: copies, update"""
    each_checkpoint: Items
    """items of each layer that is computed again as a whole"""
    waits: tuple[str, ...] = ()
    """operations and exchanges of a layer that the host waits for: expert_counts (numbers of rows
    come to the host before a variable all-to-all), dispatch; and messages: the host waits for each
    message between stages"""
    graphed: tuple[str, ...] = ()
    """operations, by name or kind, and exchanges that are replayed from CUDA graphs, so that they
    cost the host nothing; all: every one in a layer. The replay itself, about 15 us for each graph,
    is left out"""
    collector: CollectorSpec | None = None
    """garbage collection; null: none, or part of what its kernels and host were fitted on"""


class RunsSpec(Spec):
    """What a stack can run of what a layout may ask for, as its own options say."""

    schedules: tuple[str, ...]
    """kinds of pipeline schedules"""
    pairs: Flag = False
    """whether it hides expert all-to-all of one micro-batch under the compute of another"""
    recompute: tuple[Recompute, ...] = ("full",)
    """what its options compute again"""
    fp8_store: tuple[Fp8Store, ...] = ()
    """what it keeps in FP8 until the backward pass"""
    offload: tuple[Offload, ...] = ()
    """what it can keep in host memory"""


class SoftwareSpec(Spec):
    """A software stack that trains."""

    name: str
    """what reports call the stack"""
    framework: str
    """framework and libraries"""
    release: str
    """of the framework, or the years of it"""
    runs: RunsSpec | None = None
    """layouts that it can run; null: all that can be simulated"""
    host: HostThreadSpec | None = None
    """what its host does; null: nothing beside launches (`calibration.dispatch`)"""
    unfused: tuple[Literal["norm", "rotary", "activation", "adapters"], ...] = ()
    """RMSNorm, rotary positions and SwiGLU that run as one kernel for each call of the framework,
    as in Hugging Face's models, and low-rank adapters in fp32, as in PEFT from 0.11 on; the others
    are one kernel, by hand or by a compiler"""
    separate_products: Flag = False
    """queries, keys and values are a product each, and so are gate and up; false: one product
    together"""
    copies_gathered: Flag = False
    """parameters that are gathered (zero 3) are copied from the buffer of the collective into
    their own, and gradients the other way, as PyTorch's FSDP2 does"""
    frees_late: Flag = False
    """memory of a gathered layer (zero 3) is free only once the device has passed the layer, so one
    more is reserved (FSDP1: `record_stream`, two gathers in flight)"""
    expandable: Flag = False
    """the allocator's segments grow in place (PyTorch's expandable_segments)"""
    gradient_stand_ins: Flag = False
    """kernels add gradients to their buffers, and autograd gets an empty tensor instead, of which
    one per shape of a matrix is kept (Transformer Engine from 2.3 on)"""
    weights_apart: Flag = False
    """routing weights travel in an all-to-all of their own behind that of their rows, as in
    Megatron-Core; false: with them"""
    permute: Literal["fused", "unfused"] = "fused"
    """how rows come into order of experts, with the dispatchers alltoall and allgather: by one
    kernel, or picked by index and added to zeros by calls of the framework"""
    pads_experts: Flag = False
    """in FP8 kernels of their own pad each expert's rows to the multiple that products need, and
    cut them again, as Transformer Engine's Fp8Padding; false: routing or the dispatcher pads"""
    calibrations: Annotated[dict[str, str], Field(default_factory=dict[str, str])]
    """calibrations of its kernels by GPU; of others the GPU's own is taken"""
