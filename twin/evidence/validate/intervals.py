"""Intervals of answers, and the residuals that the product's intervals rest on.

What a residual is and how it makes an interval is in `twin.reports.interval`, which reads the file
that `write` writes. Residuals are of rows with `use: fit` or `near-fit` only: a check row is never
among them, so that it judges intervals, too. `held` tells how many families intervals hold that
they were not made of: each is predicted by the others (level 0), by those of other profiles (1), of
other GPUs (2), of GPUs of another speed (3).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any, Final, cast

from twin.answers.run_store import unwritable
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.scenario_parts import gpu_spec, model_of, spec_of
from twin.evidence.validate.stacks import profile_of, stack_of
from twin.evidence.validate.suite import PublishedRow, Unreadable
from twin.loading import load_part
from twin.reports.interval import (
    FEWEST,
    Circumstances,
    Known,
    Residual,
    level_of,
    nearest_level,
    reach,
    spread,
    width,
)

METRICS: Final = ("step_seconds", "peak_device_bytes")
"""What residuals are kept of."""
TRAINING: Final = "train_step"
"""Rows whose scenarios intervals are of."""


def circumstances(row: PublishedRow) -> Circumstances | None:
    """What a training row shares with others; None where it is no scenario. The same as
    `twin.reports.interval.circumstances` says of that scenario, without making it."""
    try:
        gpu, model = gpu_spec(row.gpu), model_of(row)
        calibration = _calibration(profile_of(stack_of(row, gpu.name), gpu.name))
        gpus, sequence = row.gpus, row.sequence
    except Unreadable:
        return None
    spec = spec_of(model) if isinstance(model, str) else None
    return Circumstances(
        gpu=gpu.name,
        peak=gpu.bf16_dense,
        calibration=calibration,
        precision=row.precision,
        experts=spec.moe is not None if spec else "moe" in model,
        gpus=gpus or 1,
        hidden=spec.hidden if spec else cast("dict[str, Any]", model)["hidden"],
        sequence=sequence or 1,
    )


@cache
def _calibration(profile: str) -> str:
    return load_part("calibrations", profile).spec.name


def residuals(rows: Iterable[PublishedRow], answers: Iterable[RowResult]) -> tuple[Residual, ...]:
    """Residuals of rows that were fitted, or lie near those."""
    own, found = {row.id: row for row in rows if row.category == TRAINING}, list[Residual]()
    for one in answers:
        if one.use == "check" or one.metric not in METRICS or one.id not in own:
            continue
        at = circumstances(own[one.id])
        if at is not None and one.predicted and one.measured:
            found.append(_residual(one, at, log(one.measured / one.predicted)))
    return tuple(found)


def _residual(one: RowResult, at: Circumstances, value: float) -> Residual:
    assert one.measured is not None, "asked of what was measured"
    measured, flop = (float(f"{size:.6g}") for size in (one.measured, one.flop or 0.0))
    fitted = one.use == "fit"
    return Residual(
        one.id, family(one), one.metric, fitted, round(value, 4), measured, flop or None, at
    )


def family(one: RowResult) -> str:
    """Near copies, in words."""
    return " | ".join(one.family)


def known(found: Iterable[Residual]) -> Known:
    """Residuals in an order of their own."""
    return Known(tuple(sorted(found, key=lambda one: (one.metric, one.id))))


def held(own: Sequence[Residual], level: int = 0) -> float | None:
    """Share of families that an interval holds when it is made of the others, none nearer than
    `level` and some as near; None of too few families."""
    hits: dict[str, list[bool]] = {}
    for one in own:
        others = [
            other
            for other in own
            if other.family != one.family and level_of(one.at, other.at) >= level
        ]
        if others and (level == 0 or nearest_level(one.at, others) == level):
            hits.setdefault(one.family, []).append(abs(one.value) <= width(one.at, others))
    return fmean(map(fmean, hits.values())) if len(hits) >= FEWEST else None


def with_intervals(
    rows: Iterable[PublishedRow], answers: Iterable[RowResult], told: Known
) -> tuple[RowResult, ...]:
    """Answers with the intervals that a report of their scenario has, and with what these know of
    their row. Of a row that is among the residuals, its family is left out of them."""
    places = {row.id: circumstances(row) for row in rows if row.category == TRAINING}
    found: list[RowResult] = []
    for one in answers:
        at = places.get(one.id)
        if at is not None:
            one = replace(one, calibration=at.calibration, experts=at.experts)  # noqa: PLW2901
        if one.predicted is None or at is None or one.metric not in METRICS:
            found.append(one)
            continue
        own = told if one.use == "check" else without(told, family(one))
        far = reach(at, one.metric, own)
        span = None if far is None else spread(one.predicted, far.size)
        found.append(replace(one, interval=span))
    return tuple(found)


def without(told: Known, name: str) -> Known:
    """Residuals of all families but one."""
    return replace(told, residuals=tuple(one for one in told.residuals if one.family != name))


def write(file: Path, told: Known) -> None:
    """Write residuals, a line each. Raises UsageError where that is impossible."""
    lines = ",\n".join(json.dumps(_line(one)) for one in told.residuals)
    try:
        file.write_text(f'{{"residuals": [\n{lines}\n]}}\n', encoding="utf-8")
    except OSError as error:
        raise unwritable(file, error, "--residuals") from None


def _line(one: Residual) -> dict[str, Any]:
    at = {name: getattr(one.at, name) for name in Circumstances.__slots__}
    return {
        "id": one.id, "family": one.family, "metric": one.metric, "fitted": one.fitted,
        "residual": one.value, "measured": one.measured, "flop": one.flop, **at,
    }  # fmt: skip
