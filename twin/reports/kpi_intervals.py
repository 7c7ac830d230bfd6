"""80 % intervals of a report's key figures, and what is to be known of them.

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

from twin.planning.types import Warning
from twin.reports.interval import Circumstances, Known, Reach, circumstances, reach, shipped, spread
from twin.scenario import Scenario
from twin.spec.kpis import KPIS

Interval = tuple[float, float]
AS_THE_STEP: Final = frozenset(("step_seconds", "days", "gpu_hours", "cost_usd"))
"""Key figures that grow with the step."""
AS_ITS_INVERSE: Final = frozenset(
    ("tokens_per_second", "tokens_per_second_per_gpu", "mfu", "hfu", "model_tflops_per_gpu")
)
"""Those that shrink with it."""
_LEVELS: Final = (
    "",
    "no published run of this GPU under this calibration is known to it",
    "no published run of this GPU is known to it, only of others as fast",
    "no published run of this GPU is known to it, nor of others as fast",
)
_WORDS: Final = {"gpus": "GPUs", "hidden": "channels", "sequence": "tokens per sequence"}


def intervals(
    scenario: Scenario, figures: Mapping[str, float | None], known: Known | None = None
) -> tuple[dict[str, Interval | None], tuple[Warning, ...]]:
    """The interval of each key figure, None where there is none, and warnings that say why, or what
    widens them. `known` are the residuals that ship, unless others are given."""
    residuals, at = shipped() if known is None else known, circumstances(scenario)
    step, peak = (reach(at, name, residuals) for name in ("step_seconds", "peak_device_bytes"))
    spans = {kpi.key: _interval(kpi.key, figures, step, peak) for kpi in KPIS}
    return spans, tuple(_warnings(at, spans, figures, (step, peak)))


def _interval(
    key: str, figures: Mapping[str, float | None], step: Reach | None, peak: Reach | None
) -> Interval | None:
    value = figures.get(key)
    if value is None:
        return None
    if key == "peak_device_bytes":
        return None if peak is None else spread(value, peak.size)
    seconds = figures.get("step_seconds")
    if step is None or seconds is None:
        return None
    if key in AS_THE_STEP or key in AS_ITS_INVERSE:
        return spread(value, step.size)
    if key in ("exposed_communication_seconds", "bubble_fraction"):
        return _part(value, seconds, step.size, of_step=key == "bubble_fraction")
    return None


def _part(value: float, step: float, size: float, *, of_step: bool) -> Interval:
    """A part of the step that takes all of its miss: in seconds, or as a share of the step."""
    if value == 0.0:  # a plan without it: no pipeline, or nothing to send
        return 0.0, 0.0
    seconds = value * step if of_step else value
    short, long = step * exp(-size), step * exp(size)
    low, high = max(seconds - (step - short), 0.0), seconds + (long - step)
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
    for name, own in (("step", step), ("peak", peak)):
        if own is not None and own.level > 0:
            message = f"The interval of the {name} is of other runs: {_LEVELS[own.level]}."
            warnings.append(Warning("interval-of-other-runs", message))
        if own is not None and own.outside:
            sizes = ", ".join(f"{getattr(at, size):,} {_WORDS[size]}" for size in own.outside)
            message = f"The interval of the {name} is wider, for sizes beyond those measured on "
            warnings.append(Warning("interval-beyond-measured", f"{message}such GPUs: {sizes}."))
    return warnings
