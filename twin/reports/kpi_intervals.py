"""80 % intervals of a report's key figures, the correction of its step, and warnings about both.

The step's and the peak's come from residuals of published runs (`twin.reports.interval`). What is
the step times or over a constant has the step's factor. Of exposed communication and of the bubble
no published run says how far they lie off, so theirs reach as far as they would if all that the
step may be missed by were theirs: longer or shorter by that many seconds, with the step. It is as
much as can be said, and more than they need where misses are spread; it breaks where misses of
several causes cancel in the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import Final

from twin.planning.types import Plan, Warning
from twin.reports.interval import (
    Circumstances,
    Correction,
    Known,
    Reach,
    circumstances,
    reach,
    shipped,
)
from twin.reports.tuned_step import TunedStep
from twin.spec.kpis import KPIS

Interval = tuple[float, float]
AS_THE_STEP: Final = frozenset(("step_seconds", "days", "gpu_hours", "cost_usd"))
"""Key figures that grow with the step."""
AS_ITS_INVERSE: Final = frozenset(
    ("tokens_per_second", "tokens_per_second_per_gpu", "mfu", "hfu", "model_tflops_per_gpu")
)
"""Those that shrink with it."""


def intervals(
    at: Circumstances,
    figures: Mapping[str, float | None],
    known: Known | None = None,
    *,
    physics: bool = False,
    tuned: TunedStep | None = None,
) -> tuple[dict[str, Interval | None], Correction | None, tuple[Warning, ...]]:
    """The interval of each key figure, None where there is none; the correction of the step, None
    where nothing is known or `physics` alone is asked for; and warnings that say why, or what
    widens them. `known` are the residuals that ship, unless others are given. `tuned`: the step of
    the stack that an interval must hold, too, because the software is assumed."""
    residuals = shipped() if known is None else known
    step, peak = (reach(at, name, residuals) for name in ("step_seconds", "peak_device_bytes"))
    seconds = figures.get("step_seconds")
    correction = None
    if step is not None and seconds is not None and not physics:
        factor = exp(step.centre)
        evidence = step.families, step.sources, step.alike
        correction = Correction(seconds, factor, seconds * factor, *evidence, at.regime)
    step = step.physics if step is not None and physics else step
    if step is not None and tuned is not None and seconds:
        step = tuned.held(step, seconds, residuals, physics=physics)
    spans = {kpi.key: _interval(kpi.key, figures, step, peak) for kpi in KPIS}
    return spans, correction, tuple(_warnings(at, spans, figures, (step, peak)))


def step_interval(plan: Plan, breakdown_ns: Mapping[str, int]) -> Interval | None:
    """The interval of a step that a mean rank spends so."""
    step = reach(circumstances(plan, breakdown_ns), "step_seconds", shipped())
    return None if step is None else step.spread(sum(breakdown_ns.values()) / 1e9)


def peak_interval(plan: Plan) -> Interval | None:
    """The interval of a plan's peak of device memory, without a simulated step."""
    peak = reach(circumstances(plan, {}), "peak_device_bytes", shipped())
    return None if peak is None else peak.spread(plan.memory.peak.peak_bytes)


def _interval(
    key: str, figures: Mapping[str, float | None], step: Reach | None, peak: Reach | None
) -> Interval | None:
    value = figures.get(key)
    if value is None:
        return None
    if key == "peak_device_bytes":
        return None if peak is None else peak.spread(value)
    seconds = figures.get("step_seconds")
    if step is None or seconds is None:
        return None
    if key in AS_THE_STEP or key in AS_ITS_INVERSE:
        return (step if key in AS_THE_STEP else step.inverse).spread(value)
    if key in ("exposed_communication_seconds", "bubble_fraction"):
        ends = step.spread(seconds)
        return _part(value, seconds, ends, of_step=key == "bubble_fraction")
    return None


def _part(value: float, step: float, ends: Interval, *, of_step: bool) -> Interval:
    """A part of the step that takes all of its miss: in seconds, or as a share of the step."""
    if value == 0.0:  # a plan without it: no pipeline, or nothing to send
        return 0.0, 0.0
    seconds = value * step if of_step else value
    short, long = ends
    low, high = max(seconds - (step - short), 0.0), max(seconds + (long - step), 0.0)
    return (low / short, high / long) if of_step else (low, high)


def _warnings(
    at: Circumstances,
    spans: Mapping[str, Interval | None],
    figures: Mapping[str, float | None],
    reaches: tuple[Reach | None, Reach | None],
) -> list[Warning]:
    step, peak = reaches
    warnings: list[Warning] = []
    without = [key for key, span in spans.items() if span is None and figures.get(key) is not None]
    if step is None and peak is None:
        why = f"no published run on a GPU like {at.gpu} is known to the twin."
        return [Warning("no-interval", f"No key figure has an interval: {why}")]
    if without:
        names = ", ".join(without)
        why = "no published run says how far they lie off."
        warnings.append(Warning("no-interval", f"Without an interval: {names}; {why}"))
    if step is not None and step.blind:
        message = (
            f"Software that nobody measured: the interval of the step comes from {step.sources} "
            "sources that were predicted before their software was known. It is wider than the "
            "interval of a named stack."
        )
        warnings.append(Warning("interval-of-unknown-software", message))
    if step is not None and not step.alike:
        kind = "mixtures of experts" if at.experts else "dense models"
        message = f"The interval of the step is of other runs: none is of {kind} on GPUs as fast."
        warnings.append(Warning("interval-of-other-runs", message))
    return warnings
