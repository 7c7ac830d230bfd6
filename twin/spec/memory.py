"""Memory policy: what is kept, and what is computed again in the backward pass."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from twin.spec.base import Spec

Recompute = Literal["full", "attention_core"]


class MemorySpec(Spec):
    """`recompute` names what the backward pass computes again: every layer (`full`) or the part of
    attention between the projections (`attention_core`, Korthikanti et al. 2022, section 4.2)."""

    recompute: tuple[Recompute, ...] = Field(
        default=(), description="what the backward pass computes again; empty: all is kept"
    )
