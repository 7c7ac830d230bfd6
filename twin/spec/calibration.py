"""Calibration profile: how close to the roofline one GPU with one software stack comes, per class
of operation, and for matrix products by shape and precision."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from pydantic import AfterValidator, Field, Strict

from twin.errors import FieldError
from twin.spec.base import (
    UNWRITTEN,
    BytesPerSecond,
    Count,
    Flag,
    Seconds,
    Share,
    Spec,
    Watts,
    Whole,
)


def _in_order(span: tuple[int, int]) -> tuple[int, int]:
    if span[0] > span[1]:
        message = f"from {span[0]} to {span[1]} is no range"
        raise FieldError("TW165", message, "write the least first")
    return span


Span = Annotated[tuple[Count, Count], AfterValidator(_in_order)]
"""The least and the most that was measured."""
Ramp = Annotated[float, Field(ge=0, le=1e5)]
"""Where half of an efficiency is reached."""
Loss = Annotated[float, Strict(), Field(ge=0, le=0.99)]
"""A part of a speed that is lost, none to 99 %."""


class Assumed(NamedTuple):
    """A share of the roofline that no profile has, and the range it is in."""

    usual: float
    least: float
    most: float


SCANS: Final = {
    "scan": (Assumed(0.57, 0.35, 0.6), Assumed(0.25, 0.15, 0.4)),
    "state_scan": (Assumed(0.39, 0.24, 0.41), Assumed(0.17, 0.1, 0.27)),
}
"""Share of the roofline that kernels of chunks reach, forward and backward, of linear attention and
of state-space blocks: assumed, with its range. Forward, heads of 128: gated delta nets 0.59 and
0.60 and Kimi delta attention 0.54 and 0.57 on H800 (PaddlePaddle/flash-attention, pull request
133), gated delta nets 0.34 on B200 (flashinfer, 2742). Backward: what is left of both ways of gated
delta nets on H200 (flash-linear-attention, issue 645) 0.18, and of Kimi delta attention on B200
(inclusionAI/cuLA, 54) 0.33. State-space blocks, forward: Mamba-2 0.39 on H100 (vllm-project/vllm,
27299) and the last of its kernels 0.41 on H800, tuned (tile-ai/tilelang, benchmark/mamba2);
backward, of which no timing by shape was found, and the ranges: in proportion to the others."""


class MatmulSpec(Spec):
    """Matrix products of one precision by shape (`twin.hardware.matmul` has the law): fitted once
    on measured products, not looked up in them."""

    efficiency: Share
    """share of the peak that large products come up to"""
    ramp: Ramp
    """length of the inner sum at which half of that is reached: filling and emptying the pipeline
    of each tile"""
    launch: Seconds
    """time that each product adds beside its own"""
    group_launch: Seconds = 0.0
    """time that each group adds beside, in a product of groups"""
    bandwidth: Share | None = None
    """share of the memory's bandwidth that products reach; null: that of all others"""
    whole_tiles: Flag = True
    """whether each tile of the result is one SM's, so that the last round of tiles leaves SMs idle;
    false where the inner sum is split among them"""
    unaligned: Share = 1.0
    """share of its speed that a product keeps with a row of an operand or of the result that is no
    multiple of 16 bytes: 50,257 columns"""
    grouped: Share = 1.0
    """share of its speed that a product of groups in one kernel keeps"""
    weight_gradient: Share = 1.0
    """share of its speed that the gradient of a weight keeps"""
    sustained: Share = 1.0
    """share of their speed that products keep one after the other, as in a step, where power limits
    the clock; on top of the profile's `sustained`, which is of all kernels"""
    scaled: Share = 1.0
    """share of its speed that a product in FP8 keeps with a scale per 32 values"""
    sides: Span
    """rows per group, and columns, of the products measured"""
    inner: Span
    """inner sums of the products measured"""


class MatmulsSpec(Spec):
    """Matrix products by shape, for each precision that was measured."""

    bf16: MatmulSpec | None = None
    fp8: MatmulSpec | None = None
    fp4: Annotated[MatmulSpec | None, UNWRITTEN] = None
    """null: as fp8, of the higher peak"""


class KernelsSpec(Spec):
    """Kernels of one kind that wait for memory."""

    bandwidth: Share
    """share of the memory's bandwidth that they reach"""
    launch: Seconds
    """time that each adds beside"""
    backward: Share = 1.0
    """of that share what those of gradients reach"""


class StreamingSpec(Spec):
    """Kernels that wait for memory, by what they do, for each kind that was measured apart. In an
    eager framework several loops stand for what is counted as one kernel: then its share of the
    bandwidth is low, and its launch long. What is absent is as all others."""

    norm: KernelsSpec | None = None
    """RMSNorm and LayerNorm"""
    activation: KernelsSpec | None = None
    """SwiGLU and the like"""
    rotary: KernelsSpec | None = None
    """rotary positions"""
    cast: KernelsSpec | None = None
    """casts to FP8 and back"""
    gather: KernelsSpec | None = None
    """rows that are copied into another order, sums of them"""
    permute: KernelsSpec | None = None
    """copies of tokens by expert, and their sums by token; null: as gather"""
    routing: KernelsSpec | None = None
    """scores and choice of experts"""
    loss: KernelsSpec | None = None
    """softmax and loss over the vocabulary"""
    update: KernelsSpec | None = None
    """the optimizer's elementwise update"""
    gradient_norm: KernelsSpec | None = None
    """sum of squares of gradients"""


class CalibrationSpec(Spec):
    """One efficiency per class of operation (share of the roofline, 0 to 1), matrix products by
    shape where they were measured, the cost of launching a kernel, and what communication takes
    from kernels beside it."""

    name: str
    """what reports call the profile"""
    gpu: str
    """the GPU that the profile was measured on"""
    software: str
    """framework and libraries that the profile was measured with"""
    date: str
    """when it was measured"""
    gemm: Share
    """dense matrix products whose shape `matmuls` does not know"""
    grouped_gemm: Share
    """matrix products of all experts of a rank, where `matmuls` knows no shape"""
    matmuls: MatmulsSpec | None = None
    """matrix products by shape and precision"""
    attention_forward: Share
    """the attention kernel, forward; of long sequences where it has a ramp"""
    attention_backward: Share
    """the attention kernel, backward"""
    attention_forward_ramp: Ramp = 0.0
    """FLOP per byte of HBM at which attention reaches half of it: short sequences fill and empty
    its pipeline more often"""
    attention_backward_ramp: Ramp = 0.0
    """the same, backward"""
    attention_forward_width: Ramp = 0.0
    """mean width of heads at which attention reaches half of it: exponentials between the products
    take as long for narrow heads as for wide ones"""
    attention_backward_width: Ramp = 0.0
    """the same, backward"""
    attention_forward_launch: Seconds | None = None
    """time that each kernel of attention adds, where not `launch`"""
    attention_backward_launch: Seconds | None = None
    """the same, backward"""
    scan_forward: Annotated[Share | None, UNWRITTEN] = None
    """kernels of linear attention and of state-space blocks, forward; null: assumed, 0.57 (0.35 to
    0.6) of linear attention, 0.39 (0.24 to 0.41) of state-space blocks"""
    scan_backward: Annotated[Share | None, UNWRITTEN] = None
    """the same, backward; null: 0.25 (0.15 to 0.4) and 0.17 (0.1 to 0.27)"""
    sustained: Share = 1.0
    """share of the tensor cores' speed in kernels timed one by one that they keep for hours: a GPU
    at its power limit clocks lower"""
    power: Watts | None = None
    """power limit of the GPU on which `sustained` was measured; on one with another limit it
    follows the power (`twin.hardware.roofline`); null: it holds whatever the limit"""
    bandwidth: Share
    """kernels bound by device memory, of its bandwidth, that `streaming` does not know"""
    streaming: StreamingSpec | None = None
    """kernels bound by device memory, by what they do"""
    expert_sms: Whole = 0
    """SMs that an expert all-to-all holds while it runs"""
    expert_sm_rate: BytesPerSecond | None = None
    """rows that one of them passes on under DeepEP, where links would carry more; null: links
    bind"""
    collective_sms: Whole = 0
    """SMs that any other collective holds while it runs"""
    contention: Loss = 0.0
    """speed that kernels lose beside communication, beyond the SMs it holds: L2 and memory
    bandwidth"""
    expert_contention: Loss = 0.0
    """rate that an expert all-to-all loses while the kernels of a paired pass run beside it"""
    expert_wait: Seconds = 0.0
    """time that the ranks of an expert all-to-all in a paired pass wait for each other before bytes
    move"""
    launch: Seconds
    """time that each kernel adds beside its roofline time"""
    dispatch: Seconds
    """time that the host needs per kernel; kernels in a row last at least that long"""
