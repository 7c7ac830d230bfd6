"""How the figures with failures come about: from the time that simulated runs lost."""

from __future__ import annotations

from collections.abc import Callable

from twin.reports.derivation import Explanation, leaf, node
from twin.reports.report import Report
from twin.reports.with_failures import NO_GOODPUT

_LOST = (
    "mean of the simulated runs (twin.goodput.monte_carlo); in the closed form "
    "(twin.goodput.closed) {0:.2f} % of the time"
)


def explain_failures(
    key: str, unit: str, report: Report, without: Callable[[str], Explanation]
) -> Explanation:
    """The derivation of a figure with failures; `without` gives those without."""
    if report.kpis[key] is None:
        why = f"unknown: {NO_GOODPUT.message}" if report.goodput is None else _unknown(report)
        return leaf(key, None, unit, why)
    share = _fraction(report)
    if key == "goodput_fraction":
        return share
    plain = key.removesuffix("_with_failures")
    formula = f"{plain} / goodput_fraction"
    return node(key, unit, formula, [without(plain), share], "rent runs on while a job is down")


def _unknown(report: Report) -> str:
    if report.kpis["days_with_failures"] is None:
        return "unknown: no simulated run made any progress"
    return "unknown, as the cost without failures is"


def _fraction(report: Report) -> Explanation:
    """Progress over all time."""
    goodput = report.goodput
    assert goodput is not None, "known figures have one"
    closed = goodput.expected_losses
    useful = 100 * goodput.expected_fraction
    parts = [leaf("progress", float(goodput.useful_ns), "ns", _LOST.format(useful))]
    for name, ns in goodput.losses_ns.items():
        parts.append(leaf(name, float(ns), "ns", _LOST.format(100 * closed[name])))
    names = " + ".join(part.name for part in parts)
    source = (
        f"{goodput.seeds} seeds from {goodput.seed}; interruptions as {goodput.source} has them"
    )
    return node("goodput_fraction", "%", f"progress / ({names})", parts, source)
