"""The key figures of a run with its failures, beside those without: `days`, `gpu_hours` and
`cost_usd` never count any.

Rent and amortisation go on while a job is down, so its cost grows as its days. (Energy that is paid
beside them grows a little less: a cluster that waits draws less than one that trains.)
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from math import exp, hypot, log
from typing import TYPE_CHECKING, Final, cast

from twin.planning.types import Plan, Warning

if TYPE_CHECKING:
    from twin.goodput import Goodput

Interval = tuple[float, float]

NO_GOODPUT: Final = Warning(
    "no-goodput",
    "Days and cost are without failures: the scenario has no section goodput, so goodput_fraction, "
    "days_with_failures and cost_usd_with_failures are unknown.",
)


def goodput_of(plan: Plan, step_ns: int) -> Goodput | None:
    """What the failures of a run leave of its time; None where the scenario says nothing of them.
    The room is not even imported then."""
    if plan.scenario.goodput is None:
        return None
    return cast("Goodput", import_module("twin.goodput").goodput(plan, step_ns / 1e9))


def with_failures(
    figures: Mapping[str, float | None], goodput: Goodput | None
) -> dict[str, float | None]:
    """The key figures, those with failures filled in; None: unknown."""
    fraction = goodput.fraction if goodput else None
    days = goodput.days_with_failures if goodput else None
    cost = figures["cost_usd"]
    return {
        **figures,
        "goodput_fraction": fraction,
        "days_with_failures": days,
        "cost_usd_with_failures": cost / fraction if cost is not None and fraction else None,
    }


def with_spans(
    spans: Mapping[str, Interval | None],
    figures: Mapping[str, float | None],
    goodput: Goodput | None,
) -> dict[str, Interval | None]:
    """The 80 % intervals, those with failures filled in: of the effective share, what 80 % of the
    simulated runs made; of days and cost, this beside that of the step, as independent factors."""
    found = {**spans, "goodput_fraction": goodput.interval if goodput else None}
    for key, without in (("days_with_failures", "days"), ("cost_usd_with_failures", "cost_usd")):
        found[key] = _longer(spans.get(without), figures.get(without), goodput)
    return found


def _longer(span: Interval | None, value: float | None, goodput: Goodput | None) -> Interval | None:
    """A span divided by an uncertain fraction: distances in logarithms add up as those of
    independent errors do."""
    if span is None or not value or goodput is None or not min(goodput.interval):
        return None
    low, high = goodput.interval
    middle = value / goodput.fraction
    below = hypot(log(value / span[0]), log(high / goodput.fraction))
    above = hypot(log(span[1] / value), log(goodput.fraction / low))
    return middle * exp(-below), middle * exp(above)
