"""Published rows: which are shown, as marks and words; the predictions that ship, and those of this
twin, made in another process; and a row as a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from twin.errors import UsageError
from twin.evidence.validate import score, shipped_answers
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.baselines import BASELINES
from twin.evidence.validate.leave_one_out import leave_one_out
from twin.evidence.validate.score import Key
from twin.evidence.validate.shipped_answers import ShippedAnswers, plan_of
from twin.evidence.validate.suite import PublishedRow, Unreadable, read_suite
from twin.evidence.validate.summary import Summary, summarize
from twin.evidence.validate.validate import at_once, validate
from twin.figures.serving import Coverage, GroupError, RowMark
from twin.reports.interval import shipped as residuals
from twin.reports.table import decimal_bytes, duration, rate, signed
from twin.ui.answers import Bug, Failure, away, guarded
from twin.ui.background import Jobs, Note, Pending
from twin.ui.workspace import Draft


@dataclass(frozen=True, slots=True)
class Metric:
    """A group of measurements in one unit, and the categories of rows without an answer that belong
    to it. `factor` converts SI to the unit of figures; `show` writes a value."""

    metrics: tuple[str, ...]
    categories: tuple[str, ...]
    unit: str
    factor: float
    show: Callable[[float], str]

    def has(self, one: RowResult) -> bool:
        """Whether an answer is of this group."""
        known = one.metric != "none"
        return one.metric in self.metrics if known else one.category in self.categories


def _plain(number: float) -> str:
    return f"{number:.3g}"


METRICS: Final[Mapping[str, Metric]] = {
    "Training steps": Metric(
        ("step_seconds",), ("train_step", "throughput_fact"), "seconds", 1.0, duration
    ),
    "Peak memory": Metric(("peak_device_bytes",), ("memory",), "GB", 1e-9, decimal_bytes),
    "Kernels": Metric(
        ("kernel_seconds", "phase_forward_seconds", "phase_backward_seconds", "phase_pair_seconds"),
        ("kernel", "kernel_trace"), "microseconds", 1e6, duration,
    ),
    "Collectives": Metric(("bus_bytes_per_second",), ("collective",), "GB/s", 1e-9, rate),
    "Weight updates": Metric(("update_seconds",), ("weight_update",), "seconds", 1.0, duration),
    "RL iterations": Metric(
        ("iteration_seconds", "rollout_seconds", "score_seconds", "train_seconds"),
        ("rl_step",), "seconds", 1.0, duration,
    ),
    "Other": Metric(
        ("bubble_fraction", "activation_share", "optimizer_state_ratio"),
        ("schedule", "optimizer", "cost", "energy", "fact", "failure", "hw_spec", "storage"),
        "shares", 1.0, _plain,
    ),
}  # fmt: skip
"""By the words of the page."""
MODELS: Final = {"Dense": False, "Mixture of experts": True}
"""Kinds of models, and whether they have experts."""
GROUPS: Final[Mapping[str, Callable[[RowResult], Key]]] = {
    "GPU": score.gpu,
    "Source": score.source,
    "Model": score.model,
    "Family": score.family,
}
"""How rows can be grouped."""
_LONGEST: Final = 40
"""Letters of a title in a figure."""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The rows that are shown; empty means all."""

    metric: str
    gpus: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    def has(self, one: RowResult) -> bool:
        """Whether an answer is shown."""
        experts = {MODELS[name] for name in self.models}
        return (
            METRICS[self.metric].has(one)
            and (not self.gpus or one.gpu in self.gpus)
            and (not self.sources or one.source in self.sources)
            and (not experts or one.experts in experts)
        )


def words(one: RowResult, metric: Metric) -> tuple[str, ...]:
    """An answer in words, a line each."""
    assert one.predicted is not None, "only predicted rows have words"
    assert one.measured is not None, "only measured rows have words"
    said = f"{metric.show(one.predicted)} predicted, {metric.show(one.measured)} measured"
    lines = [f"{said}: {error(one)}"]
    if one.interval is not None:
        low, high = map(metric.show, one.interval)
        where = "inside" if one.covered else "outside"
        lines.append(f"The measurement is {where} the 80 % interval, {low} to {high}")
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


def marks(summary: Summary, choice: RowFilter, group: str, *, seen: bool) -> tuple[RowMark, ...]:
    """Answers as dots; with `seen` fitted rows, too."""
    metric = METRICS[choice.metric]
    return tuple(
        RowMark(
            one.id,
            name(GROUPS[group](one)),
            one.measured * metric.factor,
            one.predicted * metric.factor,
            one.use == "check",
            "<br>".join((f"<b>{one.id}</b>", *words(one, metric))),
        )
        for one in summary.answers
        if one.predicted and one.measured and (seen or one.use == "check")
    )


def name(key: Key) -> str:
    """The name of a group in a figure; a long one is shortened in the middle."""
    return ", ".join(
        part if len(part) <= _LONGEST else f"{part[: _LONGEST - 16]}…{part[-15:]}" for part in key
    )


def group_errors_of(summary: Summary, group: str) -> tuple[GroupError, ...]:
    """Median errors of held-out rows by group, the largest group first."""
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


def coverage_of(summary: Summary) -> tuple[Coverage, ...]:
    """Coverage of the intervals: all, then by GPU, the most first."""
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


@lru_cache(2)
def made_from(as_of: int) -> str:
    """What answers of this twin follow from, as its files stand at `as_of`."""
    del as_of
    return shipped_answers.made_from()


def again(made_from: str) -> Pending[ShippedAnswers | Failure]:
    """All published rows, predicted by this twin; in the making, or made."""
    return away(_VALIDATIONS, made_from, predict, ())


def predict(note: Note) -> ShippedAnswers | Failure:
    """What the shipped rows come to, predicted in this process and others."""
    return guarded(lambda: _predict(read_suite(), note))


def _predict(rows: tuple[PublishedRow, ...], note: Note) -> ShippedAnswers:
    found: list[RowResult] = []
    for done, own in enumerate(validate(rows, at_once()), 1):
        found += own
        note(done / len(rows))
    try:
        left_out = leave_one_out(rows)
    except UsageError:  # scipy is an extra
        left_out = ()
    return shipped_answers.now(summarize(rows, found, residuals(), left_out))


def draft_of(row_id: str) -> Draft | Failure:
    """A published training row as a plan; the reason, where it has none."""

    def draft() -> Draft:
        row = next(row for row in _rows() if row.id == row_id)
        found = plan_of(row)
        return Draft(found.name, found.name, found.text, found.sets)

    try:
        return guarded(draft)
    except Unreadable as why:
        return Bug(str(why))


@lru_cache(1)
def _rows() -> tuple[PublishedRow, ...]:
    return read_suite()


_VALIDATIONS: Final = Jobs("twin validation")
