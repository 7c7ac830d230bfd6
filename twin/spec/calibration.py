"""Calibration profile: how close to the roofline one GPU with one software stack comes, per class
of operation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from twin.spec.base import Seconds, Share, Spec, Whole


class CalibrationSpec(Spec):
    """One efficiency per class of operation (share of the roofline, 0 to 1), and the cost of
    launching a kernel."""

    name: str = Field(description="what reports call the profile")
    gpu: str = Field(description="the GPU that the profile was measured on")
    software: str = Field(description="framework and libraries that the profile was measured with")
    date: str = Field(description="when it was measured")
    gemm: Share = Field(description="dense matrix products")
    grouped_gemm: Share = Field(description="matrix products of all experts of a rank")
    attention_forward: Share = Field(description="the attention kernel, forward")
    attention_backward: Share = Field(description="the attention kernel, backward")
    bandwidth: Share = Field(description="kernels bound by device memory, of its bandwidth")
    expert_sms: Whole = Field(
        default=0, description="SMs that an expert all-to-all holds while it runs"
    )
    collective_sms: Whole = Field(
        default=0, description="SMs that any other collective or message holds while it runs"
    )
    contention: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="speed that kernels lose beside communication, beyond the SMs it holds: "
        "L2 and memory bandwidth",
    )
    launch: Seconds = Field(description="time that each kernel adds beside its roofline time")
    dispatch: Seconds = Field(
        description="time that the host needs per kernel; kernels in a row last at least that long"
    )
