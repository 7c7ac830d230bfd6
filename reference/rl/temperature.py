"""The temperature of each iteration: high while the policy explores, lower later (Kimi K2, report,
section 3.2.3, which gives no numbers: values and shape are OURS)."""

from __future__ import annotations

from math import cos, pi
from typing import Annotated, Literal

from pydantic import Field, Strict

from twin.spec.base import Spec, Whole

Warmth = Annotated[float, Strict(), Field(ge=0.05, le=10)]
"""What logits are divided by."""


class TemperatureSpec(Spec):
    """From the first temperature to the last."""

    first: Warmth = Field(default=1.0, description="of the first iteration")
    last: Warmth = Field(default=1.0, description="after `iterations`")
    iterations: Whole = Field(default=0, description="of the decay; 0: `first` in all")
    shape: Literal["linear", "cosine"] = Field(default="linear", description="of the decay")


def temperature(spec: TemperatureSpec, iteration: int) -> float:
    """Of an iteration, from 0."""
    if not spec.iterations:
        return spec.first
    done = min(1.0, iteration / spec.iterations)
    left = 1 - done if spec.shape == "linear" else (1 + cos(pi * done)) / 2
    return spec.last + (spec.first - spec.last) * left
