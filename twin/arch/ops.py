"""The words of the arithmetic: what a layer does to one micro-batch on one rank, before seconds.

A layer is a sequence of `Op` (kernels) and `Exchange` (collectives inside the layer), in forward
order. The backward pass walks the same sequence in reverse. All numbers are per rank, after
sharding, for one micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from twin.spec.memory import MemorySpec
from twin.spec.model import LoraSpec
from twin.spec.recipe import NumbersOf, Precision, Scaling, Technique
from twin.spec.vision import ImagesSpec

Streaming = Literal[
    "norm",
    "activation",
    "rotary",
    "cast",
    "gather",
    "permute",
    "routing",
    "loss",
    "update",
    "gradient_norm",
    "bandwidth",
]
"""Kernels whose time is that of their memory traffic, by what they do: norms; SwiGLU and the like;
rotary positions; casts to and from FP8; rows that are copied into another order; scores and
choice of experts; softmax and loss over the vocabulary; an optimizer's elementwise update; sums of
squares of gradients; all others. A profile may know each kind apart (`CalibrationSpec.streaming`);
where it does not, all are as the last."""
OpClass = Literal["gemm", "grouped_gemm", "attention", "scan", "state_scan", Streaming]
"""Classes of kernels; a calibration profile has an efficiency for each. `scan`: linear attention in
chunks of a sequence, `state_scan`: state-space blocks (`twin.arch.mixer`)."""
SCAN_CLASSES: Final = ("scan", "state_scan")

CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]
Group = Literal["tensor", "context", "expert", "expert_tensor"]
Bucket = Literal["replicated", "tensor", "expert"]
LayerKind = Literal["embedding", "dense", "moe", "mixer", "mtp", "head"]
"""`mixer`: a layer of a pattern without feed-forward block; `dense` and `moe` may be without a
mixer there. `mtp`: the part of a multi-token-prediction module before its head
(`twin.arch.blocks.mtp`)."""
BLOCKS: Final[tuple[LayerKind, ...]] = ("dense", "moe", "mixer")
"""Kinds of transformer layers of the model itself."""
Dispatcher = Literal["alltoall", "deepep", "hybridep", "allgather", "einsum", "padded", "loop"]
"""How tokens come to experts (`twin.arch.dispatchers`)."""
Permute = Literal["fused", "unfused"]
"""How rows come into order of experts: by one kernel, or by framework calls one after another."""
CrossEntropy = Literal["fused", "eager", "eager_held", "compiled", "chunked"]
"""How the loss is computed from the logits (`twin.arch.blocks.loss`)."""


@dataclass(frozen=True, slots=True)
class Product:
    """The matrix product behind a kernel: `rows` x `k` by `k` x `cols`. Grouped: `rows`
    (or, for a `weight`'s gradient, `k`) are those of all `groups` together."""

    rows: int
    cols: int
    k: int
    groups: int = 1
    precision: Precision = "bf16"
    weight: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """What some kernels do: FLOP on the tensor cores, bytes of HBM traffic (read + written), and
    how many are launched. `product` is the one matrix product that does the FLOP, where it is one:
    its shape and numbers decide how close to the peak it comes. `width` of attention: the mean of
    the query-key and value widths of its heads."""

    flop: float = 0.0
    bytes: float = 0.0
    kernels: float = 0
    product: Product | None = None
    width: float = 0.0

    def __add__(self, other: Work) -> Work:
        one = self.product if not other.flop else other.product if not self.flop else None
        return Work(
            self.flop + other.flop,
            self.bytes + other.bytes,
            self.kernels + other.kernels,
            one,
            max(self.width, other.width),
        )


@dataclass(frozen=True, slots=True)
class Op:
    """One named operation and what it costs.

    `backward` is the work for the input's gradient, `weight` that for the weight's. `saved` are the
    bytes kept until the backward pass that are free again if this op is recomputed: what others
    need of its output, masks and statistics. So a layer keeps the sum of `saved`, less that of the
    ops that a memory policy recomputes. `output` is the tensor it writes, which exists while it
    runs, as its gradient does in the backward pass; 0 for an op that works in place. `late` is
    what the weight's gradient reads, the input and the output's gradient, which waits where that is
    put off. `aside` marks an op that needs nothing of the exchange before it, forward, and nothing
    that the exchange brings, backward: it may run while that is on its way.
    """

    name: str
    kind: OpClass
    forward: Work
    backward: Work
    weight: Work = Work()
    saved: float = 0.0
    output: float = 0.0
    late: float = 0.0
    aside: bool = False
    load: float = 1.0
    """Its rows over those of the mean rank of its expert group."""
    queries: int = 0
    """Of attention: queries of a sequence."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective inside a layer.

    `bytes` is the full payload per rank: the whole tensor for all-reduce, the gathered tensor for
    all-gather, the unreduced tensor for reduce-scatter, everything the rank sends (its own share
    included) for all-to-all, which is that of one copy of a token per chosen expert, whatever a
    dispatcher merges on the way. `None` where a direction needs none. `backward_bytes` is the
    payload of the backward pass where it has other numbers than the forward (FP8 one way, BF16 the
    other). `saved` as for an op. `asks` marks one whose answer the host waits for, so that nothing
    else is launched meanwhile.
    """

    name: str
    group: Group
    bytes: float
    forward: CollectiveKind | None
    backward: CollectiveKind | None
    saved: float = 0.0
    backward_bytes: float | None = None
    asks: bool = False
    among: Literal["", "heads", "keys"] = ""
    """Of context ranks: those that exchange heads, or those that share keys and values; empty: all
    of the group."""
    circle: int = 0
    """Ranks that pass it on, piece by piece, beside the kernel behind it; 0: that kernel waits."""

    @property
    def place(self) -> str:
        """Where its ranks sit, by the name of a placement."""
        return f"{self.group}_{self.among}" if self.among else self.group

    @property
    def for_weights(self) -> bool:
        """Whether it brings tensor ranks the input again, for the weight's gradient alone."""
        alone = self.forward is None and self.backward == "all_gather"
        return alone and self.group == "tensor"

    def payload(self, backward: bool = False) -> float:
        """Bytes of one direction."""
        other = self.backward_bytes if backward else None
        return self.bytes if other is None else other


Item = Op | Exchange


def backwards(items: Sequence[Item]) -> list[Item]:
    """A layer's items in the order of its backward pass: an exchange leaves before the kernels
    beside it, which need nothing of it."""
    found: list[Item] = []
    for item in reversed(items):
        place = len(found)
        if isinstance(item, Exchange):
            while place and isinstance(one := found[place - 1], Op) and one.aside:
                place -= 1
        found.insert(place, item)
    return found


@dataclass(frozen=True, slots=True)
class Shape:
    """The micro-batch, the sharding and the numbers that a layer sees on one rank: `sequences` of
    `sequence` tokens each, whole, before any cut. `expert_load`: rows of the routed experts of this
    rank over those of the mean rank (`twin.routing`); the simulated rank is the fullest.
    `kept_load`: the same over all its layers, which is what it keeps; None: it is the fullest in
    each. `arriving`: rows that a dispatcher brings it, per token that it sends, if copies for one
    rank travel as one; None: a copy travels per chosen expert. `overlap_shared`: shared experts
    do not wait for what is dispatched."""

    sequences: int
    sequence: int
    tensor: int = 1
    expert: int = 1
    sequence_parallel: bool = False
    flash: bool = True
    context: int = 1
    expert_tensor: int = 1
    expert_load: float = 1.0
    layer_loads: tuple[float, ...] = ()
    """`expert_load` of each layer with experts, where they differ."""
    kept_load: float | None = None
    arriving: float | None = None
    precision: Precision = "bf16"
    overlap_shared: bool = True
    scaling: Scaling = "block"
    """What shares a scale of FP8."""
    any_layout: bool = False
    """Products read FP8 with one scale per tensor in any layout, so that nothing is turned."""
    numbers: tuple[tuple[NumbersOf, Precision], ...] = ()
    """Parts of a layer whose products have other numbers than `precision`."""
    bf16_ends: tuple[int, int] = (0, 0)
    """First and last layers that multiply in bf16."""
    without: tuple[Technique, ...] = ()
    """Techniques of a recipe of FP4 that are left out."""
    cross_entropy: CrossEntropy = "fused"
    images: ImagesSpec | None = None
    """Images that an encoder makes tokens of (`twin.arch.blocks.vision`)."""
    lora: LoraSpec | None = None
    """Adapters; None: all weights are trained."""
    weigh_outputs: bool = False
    """Routing weights multiply what experts give, in fp32, not what their SwiGLU gives."""
    separate: bool = False
    """Each matrix is a product of its own; otherwise those that share an input are one."""
    unfused: tuple[str, ...] = ()
    """Kinds of operations that run as calls of the framework (`twin.arch.eager`)."""
    ordering: Streaming = "permute"
    """Kind of the kernels that put tokens in order of experts and back."""
    weights_apart: bool = False
    """In a plain all-to-all routing weights travel by themselves."""
    dispatcher: Dispatcher = "alltoall"
    """Of those that do not merge copies."""
    capacity: float | None = None
    """Places of an expert over its mean rows: it computes all of them, and no rows are counted."""
    permute: Permute = "fused"
    """Where the dispatcher is `alltoall` or `allgather`."""
    pads: bool = False
    """Each expert's rows are padded for FP8 products by a kernel, and cut again by another."""
    accumulate: int = 8
    """Bytes moved per weight when its gradient is added to the buffer: read and written, in fp32;
    4 in bf16."""
    context_heads: int = 1
    """Context ranks that exchange tokens for heads."""
    context_ring: bool = False
    """Keys and values go round a ring beside the attention kernel."""
    among: Literal["", "keys"] = ""
    """Which context ranks share keys and values: those of different groups that exchange heads."""

    @property
    def per_tensor(self) -> bool:
        """Whether products take numbers whose scales the dispatch of tokens does not know: all but
        FP8 with those of blocks."""
        return self.short or (self.precision == "fp8" and self.scaling != "block")

    @property
    def short(self) -> bool:
        """Whether products take FP4."""
        return self.precision in ("nvfp4", "mxfp4")

    @property
    def by_rows(self) -> bool:
        """Whether products take FP8 with a scale per row."""
        return self.precision == "fp8" and self.scaling == "row"

    def of(self, part: NumbersOf) -> Shape:
        """The shape that a part of the layer sees: with numbers of its own, where it has any."""
        own = dict(self.numbers).get(part, self.precision)
        return self if own == self.precision else replace(self, precision=own)

    @property
    def of_first_and_last(self) -> Shape:
        """The shape of layers that multiply in bf16."""
        return replace(self, precision="bf16", numbers=())

    @property
    def gathered(self) -> Precision:
        """Numbers that tensor ranks gather for products: with scales of rows it is bf16."""
        return "bf16" if self.by_rows else self.precision

    @property
    def layouts(self) -> int:
        """How often a cast writes what two products read: whole and turned, or once. Scales of 32
        values are along the inner sum of each product, so that `mx` is always written twice."""
        known = self.any_layout and self.scaling in ("tensor", "current")
        return 1 if known and not self.short else 2

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on a context rank."""
        return self.sequences * self.sequence // self.context

    @property
    def local_tokens(self) -> int:
        """Tokens that a rank holds outside the parts cut by tensor parallelism: its slice under
        sequence parallelism, otherwise all of them, the same on every tensor rank."""
        return self.tokens // self.tensor if self.sequence_parallel else self.tokens


@dataclass(frozen=True, slots=True)
class Weights:
    """Parameters on one rank by how they shard: `replicated` over all ranks of a stage, `tensor`
    cut by the tensor degree, `expert` cut over expert and expert-tensor ranks. Of each,
    `*_matrices` are those an optimizer for matrices (Muon) takes; of `replicated`, `buffers` have
    no gradient and no optimizer (expert-bias)."""

    replicated: int = 0
    tensor: int = 0
    expert: int = 0
    replicated_matrices: int = 0
    tensor_matrices: int = 0
    expert_matrices: int = 0
    buffers: int = 0

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
            self.buffers + other.buffers,
        )


@dataclass(frozen=True, slots=True)
class Matrices:
    """`count` weight matrices of one shape on one rank, and the bucket of `Weights` they are in."""

    bucket: Bucket
    count: int
    rows: int
    cols: int

    @property
    def weights(self) -> int:
        """Weights in all of them."""
        return self.count * self.rows * self.cols


_KEEPS_ALL: Final = MemorySpec()


@dataclass(frozen=True, slots=True)
class Layer:
    """One position of the model. Prediction modules have a head of their own."""

    kind: LayerKind
    items: tuple[Item, ...]
    weights: Weights
    input_bytes: float
    """Bytes of the layer's input on this rank: what full recomputation keeps."""
    matrices: tuple[Matrices, ...] = ()
    """The shapes behind the `*_matrices` counts of `weights`, as cut on this rank."""
    frozen: Weights = Weights()
    """Weights that are used and not trained, beside `weights`, which then are adapters."""
    tied: Weights = Weights()
    """Weights used here but counted in another layer (the embedding table, in a tied head): a
    second copy, with its gradient, on a rank that does not hold that layer."""
    heads: int = 0
    """Query heads of its attention on this rank."""
    query_key: int = 0
    """Weights of the projections that make queries and keys (and values with them) from the hidden
    state or its latents, as cut on this rank: what QK-clip scales."""
    policy: MemorySpec = _KEEPS_ALL
    """How it keeps its activations, which stages may do differently."""

    @property
    def used(self) -> Weights:
        """Weights that its kernels read, tied ones included."""
        return self.weights + self.frozen + self.tied

    @property
    def learned(self) -> Weights:
        """Those of them that have a gradient: beside frozen weights, tied ones are frozen, too."""
        return self.weights if self.frozen.total else self.weights + self.tied
