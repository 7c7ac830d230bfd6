"""Calibration profile: how close to the roofline one GPU with one software stack comes, per class of operation."""

from __future__ import annotations

from pydantic import Field

from twin.spec.base import Seconds, Spec


class CalibrationSpec(Spec):
    """One efficiency per class of operation (share of the roofline, 0 to 1), and the cost of launching a kernel."""

    name: str
    gpu: str = Field(description="the GPU that the profile was measured on")
    software: str
    date: str
    gemm: float = Field(gt=0, le=1)
    grouped_gemm: float = Field(gt=0, le=1)
    attention_forward: float = Field(gt=0, le=1)
    attention_backward: float = Field(gt=0, le=1)
    bandwidth: float = Field(gt=0, le=1)
    launch: Seconds = Field(description="time that each kernel adds beside its roofline time")
