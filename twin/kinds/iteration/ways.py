"""Ways to share GPUs between engines and trainer, compared: which is best, by how much, and what
GPUs wait for in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twin.kinds.iteration.report import IterationReport
from twin.kinds.iteration.types import CAUSES
from twin.kinds.rollouts.report import other_work
from twin.reports.compare import differences
from twin.reports.table import show
from twin.spec.expect import FIGURES
from twin.spec.kpis import Kpi

_MODES: Final[dict[str, str]] = {
    "colocated": "Colocated",
    "disaggregated": "Disaggregated",
    "one_step_off": "One-step async",
}
"""How engines and trainer share GPUs."""


def names(reports: Sequence[IterationReport]) -> list[str]:
    """Short names: how GPUs are shared, where that tells the iterations apart."""
    told = len({one.mode for one in reports}) == len(reports)
    return [_MODES[one.mode] if told else one.name for one in reports]


def measure(reports: Sequence[IterationReport]) -> tuple[Kpi, str]:
    """What iterations are compared by, and what the best one is."""
    first, *others = reports
    changes = (differences(first.scenario, one.scenario) for one in others)
    if any(other_work(fields) for fields in changes):
        return FIGURES["trained_tokens_per_second_per_gpu"], "Most tokens per second"
    return FIGURES["iteration_seconds"], "Shortest"


def ranked(reports: Sequence[IterationReport], kpi: Kpi) -> list[int]:
    """Indices from the best to the worst; those that do not fit come last."""
    sign = 1 if kpi.better == "lower" else -1
    return sorted(
        range(len(reports)),
        key=lambda at: (not reports[at].fits, sign * (reports[at].kpis[kpi.key] or 0.0)),
    )


def sentences(reports: Sequence[IterationReport]) -> list[str]:
    """Which is best, then the others, each with its interval and what its GPUs wait for; and that
    an order is open where intervals overlap."""
    kpi, best_is = measure(reports)
    called, order = names(reports), ranked(reports, kpi)
    best, span = order[0], reports[order[0]].intervals.get(kpi.key)
    found = [f"{best_is}: {called[best]}, {_answer(reports[best], kpi)}"]
    found += [f"{called[at]}: {_answer(reports[at], kpi)}" for at in order[1:]]
    open_ = [
        called[at]
        for at in order[1:]
        if span and (other := reports[at].intervals.get(kpi.key))
        if other[0] <= span[1] and span[0] <= other[1]
    ]
    if open_:
        found.append(f"The interval of {called[best]} overlaps that of {' and '.join(open_)}.")
    return found


def _answer(one: IterationReport, kpi: Kpi) -> str:
    """The figure with its interval, the idle share and its largest cause."""
    cause = max(one.idle, key=lambda key: one.idle[key], default=None)
    why = f", mostly: {CAUSES[cause]}" if cause and one.idle[cause] else ""
    unfit = "" if one.fits else "; does not fit"
    idle = show(one.kpis["idle_share"], "%")
    return f"{one.ranged(kpi)}; GPUs idle {idle}{why}{unfit}."
