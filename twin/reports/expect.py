"""Whether a run is as its scenario expects, judged on raw values and never on rounded ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from twin.reports.numbers import show
from twin.reports.table import Notes
from twin.spec.expect import FIGURES, FITS, Expectation

__all__ = ["FITS", "Judgement", "expectation_notes", "judge", "sentence"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One expectation, judged. `value` and `bound` are in the figure's own unit; `passed` is None
    where this verb does not answer the figure, and False where its value is unknown."""

    text: str
    figure: str
    bound: float | bool
    value: float | bool | None
    passed: bool | None


def judge(
    expectations: Iterable[Expectation], values: Mapping[str, float | bool | None]
) -> tuple[Judgement, ...]:
    """Every expectation against the figures that are known; what is not among `values` is left
    open."""
    return tuple(_judged(one, values) for one in expectations)


def _judged(one: Expectation, values: Mapping[str, float | bool | None]) -> Judgement:
    value = values.get(one.figure)
    passed = (value is not None and one.holds(value)) if one.figure in values else None
    return Judgement(one.text, one.figure, one.bound, value, passed)


def sentence(judgement: Judgement) -> str:
    """What came of an expectation: `step_seconds < 25s: failed, it is 33.1 s.`"""
    if judgement.passed is None:
        return f"{judgement.text}: not answered here."
    word = "holds" if judgement.passed else "failed"
    return f"{judgement.text}: {word}, it is {_value(judgement)}."


def _value(judgement: Judgement) -> str:
    """The value as people read it, and how far it is from its bound where both read the same."""
    value, bound = judgement.value, judgement.bound
    if value is None or isinstance(value, bool):
        return "unknown" if value is None else str(value).lower()
    unit = FIGURES[judgement.figure].unit
    shown = show(value, unit)
    if shown != show(bound, unit) or not bound:
        return shown
    return f"{shown} ({100 * (value / bound - 1):+.2g} % of its bound)"


def expectation_notes(judgements: Iterable[Judgement]) -> list[Notes]:
    """What came of each expectation, a line each; nothing where there are none."""
    lines = tuple(sentence(judgement) for judgement in judgements)
    return [Notes("Expectations", lines)] if lines else []
