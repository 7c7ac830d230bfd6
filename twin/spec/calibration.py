"""Calibration profile: how close to the roofline one GPU with one software stack comes, per class
of operation, and for matrix products by shape and precision."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, Strict

from twin.errors import FieldError
from twin.spec.base import Count, Flag, Seconds, Share, Spec, Whole


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


class MatmulSpec(Spec):
    """Matrix products of one precision by shape (`twin.hardware.matmul` has the law): fitted once
    on measured products, not looked up in them."""

    efficiency: Share = Field(description="share of the peak that large products come up to")
    ramp: Ramp = Field(
        description="length of the inner sum at which half of that is reached: filling and "
        "emptying the pipeline of each tile"
    )
    launch: Seconds = Field(description="time that each product adds beside its own")
    group_launch: Seconds = Field(
        default=0.0, description="time that each group adds beside, in a product of groups"
    )
    bandwidth: Share | None = Field(
        default=None,
        description="share of the memory's bandwidth that products reach; null: that of all others",
    )
    whole_tiles: Flag = Field(
        default=True,
        description="whether each tile of the result is one SM's, so that the last round of tiles "
        "leaves SMs idle; false where the inner sum is split among them",
    )
    grouped: Share = Field(
        default=1.0, description="share of its speed that a product of groups in one kernel keeps"
    )
    weight_gradient: Share = Field(
        default=1.0, description="share of its speed that the gradient of a weight keeps"
    )
    sides: Span = Field(description="rows per group, and columns, of the products measured")
    inner: Span = Field(description="inner sums of the products measured")


class MatmulsSpec(Spec):
    """Matrix products by shape, for each precision that was measured."""

    bf16: MatmulSpec | None = None
    fp8: MatmulSpec | None = None


class KernelsSpec(Spec):
    """Kernels of one kind that wait for memory."""

    bandwidth: Share = Field(description="share of the memory's bandwidth that they reach")
    launch: Seconds = Field(description="time that each adds beside")


class StreamingSpec(Spec):
    """Kernels that wait for memory, by what they do, for each kind that was measured apart. In an
    eager framework several loops stand for what is counted as one kernel: then its share of the
    bandwidth is low, and its launch long. What is absent is as all others."""

    norm: KernelsSpec | None = Field(default=None, description="RMSNorm and LayerNorm")
    activation: KernelsSpec | None = Field(default=None, description="SwiGLU and the like")
    rotary: KernelsSpec | None = Field(default=None, description="rotary positions")
    cast: KernelsSpec | None = Field(default=None, description="casts to FP8 and back")
    gather: KernelsSpec | None = Field(
        default=None, description="rows that are copied into another order, sums of them"
    )
    routing: KernelsSpec | None = Field(default=None, description="scores and choice of experts")
    loss: KernelsSpec | None = Field(
        default=None, description="softmax and loss over the vocabulary"
    )
    update: KernelsSpec | None = Field(
        default=None, description="the optimizer's elementwise update"
    )


class CalibrationSpec(Spec):
    """One efficiency per class of operation (share of the roofline, 0 to 1), matrix products by
    shape where they were measured, the cost of launching a kernel, and what communication takes
    from kernels beside it."""

    name: str = Field(description="what reports call the profile")
    gpu: str = Field(description="the GPU that the profile was measured on")
    software: str = Field(description="framework and libraries that the profile was measured with")
    date: str = Field(description="when it was measured")
    gemm: Share = Field(description="dense matrix products whose shape `matmuls` does not know")
    grouped_gemm: Share = Field(
        description="matrix products of all experts of a rank, where `matmuls` knows no shape"
    )
    matmuls: MatmulsSpec | None = Field(
        default=None, description="matrix products by shape and precision"
    )
    attention_forward: Share = Field(
        description="the attention kernel, forward; of long sequences where it has a ramp"
    )
    attention_backward: Share = Field(description="the attention kernel, backward")
    attention_forward_ramp: Ramp = Field(
        default=0.0,
        description="FLOP per byte of HBM at which attention reaches half of it: short sequences "
        "fill and empty its pipeline more often",
    )
    attention_backward_ramp: Ramp = Field(default=0.0, description="the same, backward")
    attention_forward_width: Ramp = Field(
        default=0.0,
        description="mean width of heads at which attention reaches half of it: exponentials "
        "between the products take as long for narrow heads as for wide ones",
    )
    attention_backward_width: Ramp = Field(default=0.0, description="the same, backward")
    attention_forward_launch: Seconds | None = Field(
        default=None, description="time that each kernel of attention adds, where not `launch`"
    )
    attention_backward_launch: Seconds | None = Field(
        default=None, description="the same, backward"
    )
    sustained: Share = Field(
        default=1.0,
        description="share of the tensor cores' speed in kernels timed one by one that they keep "
        "for hours: a GPU at its power limit clocks lower",
    )
    bandwidth: Share = Field(
        description="kernels bound by device memory, of its bandwidth, that `streaming` does not "
        "know"
    )
    streaming: StreamingSpec | None = Field(
        default=None, description="kernels bound by device memory, by what they do"
    )
    expert_sms: Whole = Field(
        default=0, description="SMs that an expert all-to-all holds while it runs"
    )
    collective_sms: Whole = Field(
        default=0, description="SMs that any other collective holds while it runs"
    )
    contention: Loss = Field(
        default=0.0,
        description="speed that kernels lose beside communication, beyond the SMs it holds: "
        "L2 and memory bandwidth",
    )
    expert_contention: Loss = Field(
        default=0.0,
        description="rate that an expert all-to-all loses while the kernels of a paired pass run "
        "beside it",
    )
    expert_wait: Seconds = Field(
        default=0.0,
        description="time that the ranks of an expert all-to-all in a paired pass wait for each "
        "other before bytes move",
    )
    launch: Seconds = Field(description="time that each kernel adds beside its roofline time")
    dispatch: Seconds = Field(
        description="time that the host needs per kernel; kernels in a row last at least that long"
    )
