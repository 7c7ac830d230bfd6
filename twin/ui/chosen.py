"""What a visitor of the page Reality looks at: one kind of measurement, of some GPUs, sources and
models, as dots, bars and words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from twin.evidence.validate import score
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.baselines import BASELINES
from twin.evidence.validate.score import Key
from twin.evidence.validate.summary import Summary
from twin.figures.validation import Coverage, GroupError, RowMark
from twin.reports.numbers import decimal_bytes, duration, rate, signed


@dataclass(frozen=True, slots=True)
class Kind:
    """What was measured: metrics of one unit, and the categories of rows without an answer that
    belong to it. `factor` makes the unit of figures of SI units, `show` words."""

    metrics: tuple[str, ...]
    categories: tuple[str, ...]
    unit: str
    factor: float
    show: Callable[[float], str]

    def has(self, one: RowResult) -> bool:
        """Whether an answer is of this kind."""
        told = one.metric != "none"
        return one.metric in self.metrics if told else one.category in self.categories


def _plain(number: float) -> str:
    return f"{number:.3g}"


KINDS: Final[Mapping[str, Kind]] = {
    "Training steps": Kind(
        ("step_seconds",), ("train_step", "throughput_fact"), "seconds", 1.0, duration
    ),
    "Peak memory": Kind(("peak_device_bytes",), ("memory",), "GB", 1e-9, decimal_bytes),
    "Kernels": Kind(
        ("kernel_seconds", "phase_forward_seconds", "phase_backward_seconds", "phase_pair_seconds"),
        ("kernel", "kernel_trace"), "microseconds", 1e6, duration,
    ),
    "Collectives": Kind(("bus_bytes_per_second",), ("collective",), "GB/s", 1e-9, rate),
    "Weight updates": Kind(("update_seconds",), ("weight_update",), "seconds", 1.0, duration),
    "Iterations of RL": Kind(
        ("iteration_seconds", "rollout_seconds", "score_seconds", "train_seconds"),
        ("rl_step",), "seconds", 1.0, duration,
    ),
    "All else": Kind(
        ("bubble_fraction", "activation_share", "optimizer_state_ratio"),
        ("schedule", "optimizer", "cost", "energy", "fact", "failure", "hw_spec", "storage"),
        "shares", 1.0, _plain,
    ),
}  # fmt: skip
"""By the words of the page."""
MODELS: Final = {"Dense": False, "With experts": True}
"""Kinds of models, and whether they have experts."""
GROUPS: Final[Mapping[str, Callable[[RowResult], Key]]] = {
    "GPU": score.gpu,
    "Source": score.source,
    "Model": score.model,
    "Family": score.family,
}
"""What rows can be put together by."""
_LONGEST: Final = 40
"""Letters of a title in a figure."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a visitor looks at; nothing named is all."""

    kind: str
    gpus: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    def has(self, one: RowResult) -> bool:
        """Whether an answer is looked at."""
        experts = {MODELS[name] for name in self.models}
        return (
            KINDS[self.kind].has(one)
            and (not self.gpus or one.gpu in self.gpus)
            and (not self.sources or one.source in self.sources)
            and (not experts or one.experts in experts)
        )


def words(one: RowResult, kind: Kind) -> tuple[str, ...]:
    """What is told of an answer, a line each."""
    assert one.predicted is not None, "asked of what was predicted"
    assert one.measured is not None, "asked of what was measured"
    lines = [
        f"{kind.show(one.predicted)} predicted, {kind.show(one.measured)} measured: {error(one)}"
    ]
    if one.interval is not None:
        low, high = map(kind.show, one.interval)
        where = "inside of" if one.covered else "outside of"
        lines.append(f"What was measured lies {where} the 80 % interval, {low} to {high}")
    gpus = "" if one.gpus is None else f"{one.gpus:,} "
    lines.append(f"{one.model or 'no model'}, {one.precision}, on {gpus}{one.gpu}")
    lines.append(f"Source: {one.source}")
    if one.stack:
        known = f" (calibration {one.calibration})" if one.calibration else ""
        lines.append(f"Stack: {one.stack}{known}")
    if one.assumed:
        lines.append(f"Assumed: {'; '.join(one.assumed)}")
    return tuple(lines)


def error(one: RowResult) -> str:
    """The error in percent, with its sign."""
    return "unknown" if one.error is None else f"{signed(100 * one.error)} %"


def points(summary: Summary, choice: Choice, group: str, *, seen: bool) -> tuple[RowMark, ...]:
    """Answers as dots; with `seen` those of rows that a fit has seen, too."""
    kind = KINDS[choice.kind]
    return tuple(
        RowMark(
            one.id,
            name(GROUPS[group](one)),
            one.measured * kind.factor,
            one.predicted * kind.factor,
            one.use == "check",
            "<br>".join((f"<b>{one.id}</b>", *words(one, kind))),
        )
        for one in summary.answers
        if one.predicted and one.measured and (seen or one.use == "check")
    )


def name(key: Key) -> str:
    """What a group is called in a figure: of a long title both ends."""
    return ", ".join(
        part if len(part) <= _LONGEST else f"{part[: _LONGEST - 16]}…{part[-15:]}" for part in key
    )


def missed(summary: Summary, group: str) -> tuple[GroupError, ...]:
    """Median errors of groups that judge, those with most rows first."""
    key = GROUPS[group]
    theirs = [
        {one.key: one.errors.median for one in score.grouped(score.judged(own), key)}
        for own in (summary.baselines.get(b, ()) for b in BASELINES)
    ]
    own = score.grouped(score.judged(summary.answers), key)
    return tuple(
        GroupError(
            name(one.key),
            one.errors.rows,
            one.errors.median,
            tuple(other.get(one.key) for other in theirs),
        )
        for one in sorted(own, key=lambda one: -one.errors.rows)
    )


def held(summary: Summary) -> tuple[Coverage, ...]:
    """Intervals that hold: of all, then by GPU, those with most first."""
    judging = score.judged(summary.answers)
    whole = score.errors(judging)
    if whole is None or not whole.intervals:
        return ()
    found = [
        Coverage(one.key[0], one.errors.covered, one.errors.intervals)
        for one in score.grouped(judging, score.gpu)
        if one.errors.intervals
    ]
    return (
        Coverage("All", whole.covered, whole.intervals),
        *sorted(found, key=lambda one: -one.intervals),
    )
