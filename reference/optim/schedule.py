"""The learning rate of a step: warm-up, stable, decay (WSD; Hu et al. 2024, arXiv:2404.06395,
section 4), as Kimi K2 was trained (arXiv:2507.20534, section 2.5).

K2: 500 steps of warm-up to 2e-4, which holds for 10T tokens, then a cosine to 2e-5 over 5.5T. Its
later stages (2e-5 to 7e-6, shape not given) are stages of a run, with rates of their own.
"""

from __future__ import annotations

from math import cos, pi
from typing import Literal

from pydantic import Field

from reference.optim.spec import Rate
from twin.spec.base import Spec, Whole


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
