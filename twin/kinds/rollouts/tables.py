"""Rollouts as tables."""

from __future__ import annotations

from typing import Final

from twin.kinds.rollouts.report import RolloutReport
from twin.kinds.rollouts.types import SPENT, RolloutIteration
from twin.reports.expect import expectation_notes
from twin.reports.numbers import count, duration, gibibytes, show
from twin.reports.table import Block, Table, headed, headless, warning_notes
from twin.spec.kpis import ROLLOUT_KPIS

_MOMENTS: Final = 12
"""Rows of the timeline."""
_WIDTH: Final = 30
"""Characters of a full bar."""


def report_tables(report: RolloutReport) -> tuple[Block, ...]:
    """Everything that rollouts have to say after their verdict; warnings last."""
    return (
        _iterations(report),
        _spent(report),
        _kpis(report),
        _timeline(report),
        *expectation_notes(report.expectations),
        *warning_notes(report.warnings),
    )


def _iterations(report: RolloutReport) -> Table:
    heads = ("", "takes", "done", "paused", "half", "90 %", "99 %", "tok/s", "prefilled")
    table = headed("Iterations", *heads, "of it again")
    for number, one in enumerate(report.trace.iterations, 1):
        table.add_row(
            str(number),
            duration(one.length_ns / 1e9),
            f"{len(one.done_ns):,}",
            f"{one.carried:,}",
            *(_at(one, share) for share in (0.5, 0.9, 0.99)),
            count(one.tokens_per_second),
            count(one.prefilled),
            count(one.again),
        )
    place, room = report.place, report.room
    table.caption = (
        f"{place.engines} engines with room for {count(place.tokens)} tokens each, "
        f"{gibibytes(max(0.0, room.cache))} of every GPU; half, 90 %, 99 %: when so many of the "
        "requests were done"
    )
    return table


def _at(one: RolloutIteration, share: float) -> str:
    ns = one.at(share)
    return "-" if ns is None else duration(ns / 1e9)


def _spent(report: RolloutReport) -> Table:
    table = headed("What engines do", "", "share")
    for key, part in report.spent.items():
        table.add_row(SPENT[key], f"{100 * part:.1f} %")
    return table


def _kpis(report: RolloutReport) -> Table:
    table = headless("Key figures, of the later half of the iterations", "left", "right")
    for kpi in ROLLOUT_KPIS:
        table.add_row(kpi.label, show(report.kpis[kpi.key], kpi.unit))
    return table


def _timeline(report: RolloutReport) -> Table:
    """The last iteration: requests that are written at even moments."""
    last = report.trace.iterations[-1]
    heads = ("after", "written", "wait", "queue", "")
    table = headed("The last iteration", *heads, left=(0, 4))
    most = max((load.running for load in last.loads), default=0)
    at = 0
    for moment in range(_MOMENTS):
        ns = last.begin_ns + moment * last.length_ns // _MOMENTS
        while at + 1 < len(last.loads) and last.loads[at + 1].ns <= ns:
            at += 1
        load = last.loads[at]
        bar = "█" * round(_WIDTH * load.running / most) if most else ""
        cells = (load.running, load.waiting, load.queued)
        table.add_row(duration((ns - last.begin_ns) / 1e9), *(f"{n:,}" for n in cells), bar)
    return table
