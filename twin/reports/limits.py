"""How much worse a candidate may be than its baseline: `step_seconds > +2%`, read and judged.

A limit names the change that is too much, as `FIGURE OPERATOR CHANGE`. `CHANGE` has a sign: `+2%`
is a share of the baseline's value, `+0.5s` a difference in the figure's own dimension; of figures
that are shares themselves, `-2%` is again relative and `-0.02` is two points of a hundred.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

from twin.errors import FieldError
from twin.reports.compare import CandidateDelta, KpiDelta
from twin.reports.numbers import digits, show
from twin.spec.expect import FIGURES, FITS, ORDERS, bound, check_order, cut, find_figure
from twin.spec.kpis import Kpi, Unit

_FORM = "write FIGURE OPERATOR CHANGE, such as `step_seconds > +2%`"


@dataclass(frozen=True, slots=True)
class Limit:
    """A change that is too much: a share of the baseline where `relative`, else in the figure's own
    unit."""

    text: str
    kpi: Kpi
    operator: str
    change: float
    relative: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """A candidate beyond a limit. `change` is a share of the baseline where `relative`, else in the
    figure's unit; None where it is unknown, which fails, or grew from zero."""

    text: str
    figure: str
    name: str
    hash: str
    baseline: float | None
    candidate: float | None
    change: float | None
    relative: bool


def read_limit(written: str) -> Limit:
    """The limit that a text states. Raises `FieldError` or `QuantityError`."""
    figure, operator, right = cut(written, _FORM)
    if figure == FITS:
        message = "`fits` does not change by an amount"
        raise FieldError(
            "TW052", message, "leave it out: exit code 4 says when a plan does not fit"
        )
    kpi = find_figure(figure)
    check_order(kpi, operator)
    sign, size = right[0], right[1:].strip()
    if sign not in "+-":
        message = f"`{right}` says not which way `{figure}` changes from the baseline"
        raise FieldError("TW050", message, f"write `+{right}` or `-{right}`, or a share like `+2%`")
    if not size:
        raise FieldError("TW050", f"`{written}` names no change", _FORM)
    relative = size.endswith("%")
    change = _percent(size) if relative else bound(kpi, size)
    return Limit(written, kpi, operator, change if sign == "+" else -change, relative)


def failures(deltas: Sequence[CandidateDelta], limits: tuple[Limit, ...]) -> tuple[Failure, ...]:
    """Every candidate that is beyond a limit, limit by limit."""
    return tuple(
        _failure(limit, delta)
        for limit in limits
        for delta in deltas
        if _is_beyond(limit, _change(limit, delta.kpis[limit.kpi.key]))
    )


def sentence(failure: Failure) -> str:
    """What failed: `selective is beyond mfu < -1%: 40.1 % became 38.9 % (-3.00 %).`"""
    unit = FIGURES[failure.figure].unit
    values = f"{show(failure.baseline, unit)} became {show(failure.candidate, unit)}"
    return f"{failure.name} is beyond {failure.text}: {values}{_amount(failure, unit)}."


def _amount(failure: Failure, unit: Unit) -> str:
    if failure.change is None:
        return ""
    sign, size = "-" if failure.change < 0 else "+", abs(failure.change)
    if failure.relative:
        return f" ({sign}{digits(100 * size)} %)"
    return f" ({sign}{digits(size) if unit == '%' else show(size, unit)})"


def _percent(written: str) -> float:
    if not re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+) ?%", written):
        raise FieldError("TW050", f"`{written}` is no share of the baseline", "write `+2%`")
    share = float(written[:-1]) / 100
    if not isfinite(share):
        raise FieldError("TW015", f"`{written}` is more than a number can hold", "write `+2%`")
    return share


def _change(limit: Limit, found: KpiDelta) -> float | None:
    """The change that the limit is about: from zero, any is infinitely large."""
    if not limit.relative or found.delta is None:
        return found.delta
    if found.relative is None:
        return 0.0 if found.delta == 0 else inf if found.delta > 0 else -inf
    return found.relative


def _is_beyond(limit: Limit, change: float | None) -> bool:
    return change is None or ORDERS[limit.operator](change, limit.change)


def _failure(limit: Limit, delta: CandidateDelta) -> Failure:
    found = delta.kpis[limit.kpi.key]
    change = _change(limit, found)
    return Failure(
        text=limit.text,
        figure=limit.kpi.key,
        name=delta.name,
        hash=delta.hash,
        baseline=found.baseline,
        candidate=found.candidate,
        change=change if change is not None and isfinite(change) else None,
        relative=limit.relative,
    )
