"""Intervals and corrections of answers, and the residuals that the product's rest on.

How residuals make them is in `twin.reports.interval`, which reads the file that `write` writes.
Residuals are of rows with `use: fit` or `near-fit` only: a check row is never among them, so that
it judges. An answer's own source is always left out of what corrects it, with all its tables and
releases.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any, Final

from twin.answers.run_store import unwritable
from twin.evidence.validate.answer import RowResult
from twin.reports.interval import Circumstances, Known, Residual, project, reach

METRICS: Final = ("step_seconds", "peak_device_bytes")
"""What residuals are kept of."""


def residuals(answers: Iterable[RowResult]) -> tuple[Residual, ...]:
    """Residuals of training rows that were fitted, or lie near those."""
    return tuple(
        residual(one, replace(one.at, assumed=False), log(one.measured / one.predicted))
        for one in answers
        if one.use != "check" and one.metric in METRICS
        if one.at is not None and one.predicted and one.measured
    )


def residual(one: RowResult, at: Circumstances, value: float) -> Residual:
    """The residual of an answer."""
    assert one.measured is not None, "asked of what was measured"
    measured, flop = (float(f"{size:.6g}") for size in (one.measured, one.flop or 0.0))
    fitted = one.use == "fit"
    return Residual(
        one.id, family(one), one.metric, fitted, round(value, 4), measured, flop or None, at
    )


def family(one: RowResult) -> str:
    """Near copies, in words."""
    return " | ".join(one.family)


def in_order(found: Iterable[Residual]) -> tuple[Residual, ...]:
    """Residuals in an order of their own."""
    return tuple(sorted(found, key=lambda one: (one.metric, one.id)))


def with_intervals(answers: Iterable[RowResult], told: Known) -> tuple[RowResult, ...]:
    """Answers with the expected value and the interval that a report of their scenario has, where
    nothing is known of their source."""
    others: dict[str, Known] = {}
    found: list[RowResult] = []
    for one in answers:
        if one.predicted is None or one.at is None or one.metric not in METRICS:
            found.append(one)
            continue
        name = project(one.source)
        if name not in others:
            others[name] = told.without(name)
        far = reach(one.at, one.metric, others[name])
        if far is not None:
            if one.tuned is not None and one.metric == "step_seconds":
                far = one.tuned.held(far, one.predicted, others[name])
            expected = one.predicted * exp(far.centre)
            one = replace(one, interval=far.spread(one.predicted), expected=expected)  # noqa: PLW2901
        found.append(one)
    return tuple(found)


def write(file: Path, told: Iterable[Residual]) -> None:
    """Write residuals, a line each. Raises UsageError where that is impossible."""
    lines = ",\n".join(json.dumps(line(one)) for one in told)
    try:
        file.write_text(f'{{"residuals": [\n{lines}\n]}}\n', encoding="utf-8")
    except OSError as error:
        raise unwritable(file, error, "--residuals") from None


def line(one: Residual) -> dict[str, Any]:
    """A residual as its file has it."""
    at = {name: getattr(one.at, name) for name in Circumstances.__slots__}
    return {
        "id": one.id, "family": one.family, "metric": one.metric, "fitted": one.fitted,
        "residual": one.value, "left_out": one.left_out, "measured": one.measured,
        "flop": one.flop, **at,
    }  # fmt: skip
