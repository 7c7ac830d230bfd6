"""How far answers lie off: by family, source, model and GPU, of rows that judge (`use: check`).

A family is what shares source, model, GPU and precision. Its rows are near copies of each other, so
a table of them flatters any model; what counts for a whole suite is the median of the medians of
its families. Rows that were fitted, or lie near those (`near-fit`), never enter: ask for them by
name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any, Final

import numpy as np

from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.suite import Use, refusal

Key = tuple[str, ...]
TAIL: Final = 0.9
"""Which share of families lies below the tail that is told."""


@dataclass(frozen=True, slots=True)
class Errors:
    """|predicted / measured - 1| of some answers. `bias` is the mean with its sign: below zero is
    too small. `covered` of `intervals` hold what was measured."""

    rows: int
    median: float
    mean: float
    largest: float
    bias: float
    covered: int = 0
    intervals: int = 0

    def to_json(self) -> dict[str, Any]:
        """The numbers by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class AnswerGroup:
    """Answers in one metric that have a key in common."""

    key: Key
    metric: str
    errors: Errors
    answers: tuple[RowResult, ...]


@dataclass(frozen=True, slots=True)
class Overall:
    """Errors over all rows, and over families: the median of their medians, and the median that
    nine of ten families stay below."""

    errors: Errors
    families: int
    median_of_families: float
    tail_of_families: float

    def to_json(self) -> dict[str, Any]:
        """The numbers by name."""
        return {
            **self.errors.to_json(),
            "families": self.families,
            "median_of_families": self.median_of_families,
            "p90_of_families": self.tail_of_families,
        }


def judged(answers: Iterable[RowResult], use: Use = "check") -> tuple[RowResult, ...]:
    """Answers with both a prediction and a measurement, of one use."""
    return tuple(one for one in answers if one.use == use and one.error is not None)


def errors(answers: Iterable[RowResult]) -> Errors | None:
    """Errors of answers that have one; None where none has."""
    having = [one for one in answers if one.error is not None]
    signed = [one.error for one in having if one.error is not None]
    if not signed:
        return None
    sizes = [abs(error) for error in signed]
    held = [one.covered for one in having if one.covered is not None]
    return Errors(
        len(sizes), median(sizes), fmean(sizes), max(sizes), fmean(signed), sum(held), len(held)
    )


def family(one: RowResult) -> Key:
    """Key of near copies."""
    return one.family


def source(one: RowResult) -> Key:
    """Key of what is cited from one place."""
    return (one.source,)


def model(one: RowResult) -> Key:
    """Key of a model."""
    return (one.model,)


def gpu(one: RowResult) -> Key:
    """Key of a GPU."""
    return (one.gpu,)


def category(one: RowResult) -> Key:
    """Key of a kind of measurement."""
    return (one.category,)


def grouped(
    answers: Iterable[RowResult], key: Callable[[RowResult], Key]
) -> tuple[AnswerGroup, ...]:
    """Answers by key and metric, those with the largest median first."""
    members: dict[tuple[Key, str], list[RowResult]] = {}
    for one in answers:
        members.setdefault((key(one), one.metric), []).append(one)
    found: list[AnswerGroup] = []
    for (name, metric), own in members.items():
        told = errors(own)
        if told is not None:
            found.append(AnswerGroup(name, metric, told, tuple(own)))
    return tuple(sorted(found, key=lambda group: (-group.errors.median, group.key)))


def overall(answers: Sequence[RowResult]) -> Overall | None:
    """Errors of answers in one metric, over rows and over families; None where none has one."""
    told = errors(answers)
    if told is None:
        return None
    medians = [group.errors.median for group in grouped(answers, family)]
    return Overall(told, len(medians), median(medians), float(np.quantile(medians, TAIL)))


@dataclass(frozen=True, slots=True)
class Share:
    """Rows that were expressed, of those that should be."""

    expressed: int
    rows: int

    @property
    def value(self) -> float | None:
        """As a share; None of no rows."""
        return self.expressed / self.rows if self.rows else None

    def to_json(self) -> dict[str, Any]:
        """The numbers by name."""
        return {"expressed": self.expressed, "rows": self.rows, "share": self.value}


def expressed(answers: Iterable[RowResult]) -> Share:
    """Of check rows that their source describes in full, those that have a prediction. Rows whose
    layout or batch nobody tells are not described in full, whatever they say of themselves."""
    every = tuple(answers)
    described = (one for one in every if one.reproducible and refusal(one.reason) != "untold")
    whole = {one.id: False for one in described if one.use == "check"}
    for one in every:
        if one.id in whole and one.predicted is not None:
            whole[one.id] = True
    return Share(sum(whole.values()), len(whole))


def percent(share: float | None) -> str:
    """A share in percent; none is a dash."""
    return "-" if share is None else f"{100.0 * share:.1f} %"


def signed(share: float | None) -> str:
    """The same with its sign."""
    return "-" if share is None else f"{100.0 * share + 0.0:+.1f} %"
