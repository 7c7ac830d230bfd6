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

    betas: tuple[Below1, Below1] = (0.9, 0.95)
    """Weights of the past in the first and second moment."""
    eps: Annotated[float, Strict(), Field(gt=0, le=1)] = 1e-8
    """Added to the root of the second moment."""
    lr_scale: Times = 1.0
    """This group's learning rate as a multiple of `lr`; 1 shares it, as Moonlight's update scale is
    meant for."""


class QkClipSpec(Spec):
    """QK-clip: after an update, heads whose largest attention logit passed a threshold have their
    query and key weights scaled down (Kimi K2 report, section 2.1)."""

    variant: Literal["off", "per_layer", "per_head", "adaptive"] = "per_head"
    """off; per_layer: one factor for all heads of a layer, from its largest logit; per_head: Kimi
    K2's; adaptive: per head, with a lower threshold for outliers."""
    threshold: Annotated[float, Strict(), Field(gt=0, le=1e6)] = 100.0
    """Largest attention logit that is left alone."""
    outlier: Times = 4.0
    """adaptive: a head is an outlier above this multiple of the median head's logit."""
    floor: Share = 0.3
    """adaptive: the threshold never falls below this share of `threshold`."""


class OptimizerSpec(Spec):
    """What moves the weights."""

    kind: Literal["muonclip", "muon", "adamw"] = "muonclip"
    """muonclip: Muon with QK-clip; muon: without; adamw: AdamW for all parameters."""
    lr: Rate = 2e-4
    """The largest learning rate, after the warm-up."""
    weight_decay: Annotated[float, Strict(), Field(ge=0, le=100)] = 0.1
    """decoupled: each step takes lr times this share of every weight."""
    momentum: Below1 = 0.95
    """Weight of the past in Muon's momentum."""
    nesterov: Flag = False
    """Orthogonalise the gradient plus momentum times the buffer; algorithm 1 does not."""
    momentum_buffer: Literal["sum", "average"] = "sum"
    """sum: momentum x buffer + gradient, as in algorithm 1; average: a running mean, as in
    torch.optim.Muon. Directions agree, stored buffers differ by 1 / (1 - momentum)."""
    ns_steps: Annotated[int, Strict(), Field(ge=1, le=99)] = 5
    """Newton-Schulz iterations; 10 are more exact, with no better loss."""
    rms_scale: Times = 0.2
    """Root mean square of Muon's update, before the learning rate; 0.2 is AdamW's typical one."""
    adamw: AdamwSpec = Field(default_factory=AdamwSpec)
    """The group that is no matrix, or all (`kind: adamw`)."""
    qk_clip: QkClipSpec = Field(default_factory=QkClipSpec)
    """Read by `kind: muonclip` alone."""

    @property
    def clip(self) -> QkClipSpec:
        """QK-clip as it applies to this kind: off unless muonclip."""
        if self.kind == "muonclip":
            return self.qk_clip
        return self.qk_clip.model_copy(update={"variant": "off"})


class ScheduleSpec(Spec):
    """Lengths in optimizer steps. The largest rate is the optimizer's `lr`."""

    warmup_steps: Whole = 0
    """Steps of linear warm-up to the largest rate."""
    constant_steps: Whole = 0
    """Steps at the largest rate."""
    decay_steps: Whole = 0
    """Steps from the largest rate to `final_lr`."""
    decay: Literal["cosine", "linear"] = "cosine"
    """Shape of the decay."""
    final_lr: Rate | None = None
    """The rate after the decay; null: the largest one, for ever."""


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
