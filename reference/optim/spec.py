"""The optimizer and the learning rate as their user writes them.

Kimi K2's report gives the algorithm, the weight decay and the threshold (arXiv:2507.20534, sections
2.1 and 2.5). Momentum, Newton-Schulz steps and AdamW's numbers are Moonlight's (arXiv:2502.16982,
section 2.2, and its released `toy_train.py`), by the same authors.

The learning rate is warm-up, stable, decay (WSD; Hu et al. 2024, arXiv:2404.06395, section 4). K2:
500 steps of warm-up to 2e-4, which holds for 10T tokens, then a cosine to 2e-5 over 5.5T. Its later
stages (2e-5 to 7e-6, shape not given) are stages of a run, with rates of their own.
"""

from __future__ import annotations

from math import cos, pi
from typing import Annotated, Literal

from pydantic import Field, Strict

from twin.spec.base import Flag, Share, Spec, Whole

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


class ScheduleSpec(Spec):
    """Lengths in optimizer steps. The largest rate is the optimizer's `lr`."""

    warmup_steps: Whole = Field(
        default=0, description="steps of linear warm-up to the largest rate"
    )
    constant_steps: Whole = Field(default=0, description="steps at the largest rate")
    decay_steps: Whole = Field(default=0, description="steps from the largest rate to `final_lr`")
    decay: Literal["cosine", "linear"] = Field(default="cosine", description="shape of the decay")
    final_lr: Rate | None = Field(
        default=None, description="the rate after the decay; null: the largest one, for ever"
    )


def learning_rate(step: int, spec: ScheduleSpec, peak: float) -> float:
    """The rate of the update numbered `step`, from 0. The first update has 1/warmup_steps of the
    peak, the last of the warm-up the peak itself."""
    if step < spec.warmup_steps:
        return peak * (step + 1) / spec.warmup_steps
    into = step - spec.warmup_steps - spec.constant_steps
    if into < 0 or spec.final_lr is None:
        return peak
    if into >= spec.decay_steps:
        return spec.final_lr
    done = into / spec.decay_steps
    left = 1 - done if spec.decay == "linear" else (1 + cos(pi * done)) / 2
    return spec.final_lr + (peak - spec.final_lr) * left
