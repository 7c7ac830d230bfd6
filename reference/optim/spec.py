"""The optimizer as its user writes it.

Kimi K2's report gives the algorithm, the weight decay and the threshold (arXiv:2507.20534, sections
2.1 and 2.5). Momentum, Newton-Schulz steps and AdamW's numbers are Moonlight's (arXiv:2502.16982,
section 2.2, and its released `toy_train.py`), by the same authors.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict

from twin.spec.base import Flag, Share, Spec

Rate = Annotated[float, Strict(), Field(gt=0, le=10)]
"""A learning rate."""
Below1 = Annotated[float, Strict(), Field(ge=0, lt=1)]
"""A weight of the past in a running mean or sum."""
Times = Annotated[float, Strict(), Field(ge=1e-3, le=1e3)]
"""How many times as much."""


class AdamwSpec(Spec):
    """AdamW (Loshchilov and Hutter 2019, algorithm 2) for what is no matrix: embedding, head and
    gains."""

    betas: tuple[Below1, Below1] = Field(
        default=(0.9, 0.95), description="weights of the past in the first and second moment"
    )
    eps: Annotated[float, Strict(), Field(gt=0, le=1)] = Field(
        default=1e-8, description="added to the root of the second moment"
    )
    lr_scale: Times = Field(
        default=1.0,
        description="this group's learning rate as a multiple of `lr`; 1 shares it, as Moonlight's "
        "update scale is meant for",
    )


class QkClipSpec(Spec):
    """QK-clip: after an update, heads whose largest attention logit passed a threshold have their
    query and key weights scaled down (Kimi K2 report, section 2.1)."""

    variant: Literal["off", "per_layer", "per_head", "adaptive"] = Field(
        default="per_head",
        description="off; per_layer: one factor for all heads of a layer, from its largest logit; "
        "per_head: Kimi K2's; adaptive: per head, with a lower threshold for outliers",
    )
    threshold: Annotated[float, Strict(), Field(gt=0, le=1e6)] = Field(
        default=100.0, description="largest attention logit that is left alone"
    )
    outlier: Times = Field(
        default=4.0,
        description="adaptive: a head is an outlier above this multiple of the median head's logit",
    )
    floor: Share = Field(
        default=0.3,
        description="adaptive: the threshold never falls below this share of `threshold`",
    )


class OptimizerSpec(Spec):
    """What moves the weights."""

    kind: Literal["muonclip", "muon", "adamw"] = Field(
        default="muonclip",
        description="muonclip: Muon with QK-clip; muon: without; adamw: AdamW for all parameters",
    )
    lr: Rate = Field(default=2e-4, description="the largest learning rate, after the warm-up")
    weight_decay: Annotated[float, Strict(), Field(ge=0, le=100)] = Field(
        default=0.1,
        description="decoupled: each step takes lr times this share of every weight",
    )
    momentum: Below1 = Field(default=0.95, description="weight of the past in Muon's momentum")
    nesterov: Flag = Field(
        default=False,
        description="orthogonalise the gradient plus momentum times the buffer; algorithm 1 does "
        "not",
    )
    momentum_buffer: Literal["sum", "average"] = Field(
        default="sum",
        description="sum: momentum x buffer + gradient, as in algorithm 1; average: a running "
        "mean, as in torch.optim.Muon. Directions agree, stored buffers differ by 1 / (1 - "
        "momentum)",
    )
    ns_steps: Annotated[int, Strict(), Field(ge=1, le=99)] = Field(
        default=5, description="Newton-Schulz iterations; 10 are more exact, with no better loss"
    )
    rms_scale: Times = Field(
        default=0.2,
        description="root mean square of Muon's update, before the learning rate; 0.2 is AdamW's "
        "typical one",
    )
    adamw: AdamwSpec = Field(
        default_factory=AdamwSpec, description="the group that is no matrix, or all (`kind: adamw`)"
    )
    qk_clip: QkClipSpec = Field(
        default_factory=QkClipSpec, description="read by `kind: muonclip` alone"
    )

    @property
    def clip(self) -> QkClipSpec:
        """QK-clip as it applies to this kind: off unless muonclip."""
        if self.kind == "muonclip":
            return self.qk_clip
        return self.qk_clip.model_copy(update={"variant": "off"})
