"""A sweep in words and as a table: points that fit first in mind, the others grey with the
reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from twin.answers.variants import written
from twin.explore.sweep.sweep import Sweep, SweepRow
from twin.reports.numbers import gibibytes, show
from twin.reports.table import Table, headed
from twin.spec.kpis import Kpi

_HEADINGS: Final = {
    "step_seconds": "step",
    "days": "run",
    "cost_usd": "cost",
    "mfu": "MFU",
    "iteration_seconds": "iteration",
    "rollout_seconds": "rollouts",
    "trained_tokens_per_second_per_gpu": "trained",
    "tokens_per_second_per_gpu": "per GPU",
    "idle_share": "idle",
    "tail_share": "tail",
    "cost_usd_per_iteration": "cost",
    "cost_usd_of_rollouts": "cost",
}
"""Labels that would be long."""
_MOST_ROWS: Final = 40
"""Rows of a table; of more points those that fit come first, the best before the others."""
_STATUS: Final = {
    "fits": "fits",
    "does_not_fit": "out of memory",
    "impossible": "impossible",
    "failed": "failed",
}
_WORDS: Final = {
    "fits": ("fits", "fit"),
    "does_not_fit": ("does not fit", "do not fit"),
    "impossible": ("is impossible", "are impossible"),
    "failed": ("failed", "failed"),
}


def words(found: Sweep) -> list[str]:
    """How many points ended how, and the ends of the frontier."""
    counted = [(found.count(status), pair) for status, pair in _WORDS.items()]  # pyright: ignore[reportArgumentType]
    ends = ", ".join(f"{count:,} {pair[count != 1]}" for count, pair in counted if count)
    total = len(found.rows)
    sentences = [f"{total:,} point{'s' * (total != 1)}: {ends}."]
    best = found.frontier
    if best:
        ends = {
            word: min(best, key=lambda place: found.loss(place, key))
            for word, key in zip(("Quickest", "Cheapest"), found.frontier_by, strict=True)
        }
        if len(set(found.frontier_by)) == 1:
            ends = {"Most tokens per second, since not all write the same": best[0]}
        elif len(set(ends.values())) == 1:
            ends = {"Quickest and cheapest": best[0]}
        sentences += [f"{word}: {_named(found, place)}." for word, place in ends.items()]
    return sentences


def sweep_table(found: Sweep, shown: Sequence[str] = ()) -> Table:
    """One row per point: the fields that vary, whether it fits, its key figures, or why not."""
    kpis = [kpi for kpi in found.kpis if kpi.key in (*found.kind.headline, *shown)]
    places, best = _places(found), set(found.frontier)
    named = ["", *_headings(found.fields), ""]
    figures = [_HEADINGS.get(kpi.key, kpi.label) for kpi in kpis]
    why = ["why not"] if any(row.outcome.reason for row in found.rows) else []
    heads = (*named, *figures, "to spare", *why)
    left = {*range(len(named)), *range(len(named) + len(figures) + 1, len(heads))}
    table = headed("Points", *heads, left=left)
    for place in places:
        row = found.rows[place]
        cells = _cells(row, found.fields, kpis, marked=place in best)
        table.add_row(*cells[: len(heads)], dim=row.outcome.status != "fits")
    table.caption = _caption(found, len(places))
    return table


def _cells(row: SweepRow, fields: Sequence[str], kpis: Sequence[Kpi], *, marked: bool) -> list[str]:
    outcome = row.outcome
    values = [written(row.values[path]) if path in row.values else "" for path in fields]
    figures = [show(outcome.kpis.get(kpi.key), kpi.unit) if outcome.kpis else "" for kpi in kpis]
    room = "" if outcome.headroom_bytes is None else gibibytes(outcome.headroom_bytes)
    reason = f"{outcome.code} {outcome.reason}".strip()
    return ["*" if marked else "", *values, _STATUS[outcome.status], *figures, room, reason]


def _places(found: Sweep) -> list[int]:
    """The rows that are shown: all in their order, or of many the best."""
    if len(found.rows) <= _MOST_ROWS:
        return list(range(len(found.rows)))
    best = set(found.frontier)

    def rank(place: int) -> tuple[bool, bool, float]:
        row = found.rows[place]
        fits = row.outcome.status == "fits"
        first, _ = found.frontier_by
        return (place not in best, not fits, found.loss(place, first))

    return sorted(range(len(found.rows)), key=rank)[:_MOST_ROWS]


def _caption(found: Sweep, shown: int) -> str:
    said = "* Pareto-optimal in time and cost"
    if len(set(found.frontier_by)) == 1:
        said = "* no other point writes more per second and GPU"
    if found.fidelity == "fast":
        said += "; times are fast estimates, which leave out that transfers share links"
    more = len(found.rows) - shown
    return said + (f"; {more:,} more points: --output writes all" if more else "")


def _headings(fields: Sequence[str]) -> list[str]:
    """The last key of each path, with those before it where two fields end alike."""
    last = Counter(path.rpartition(".")[2] for path in fields)
    short = {path: path.rpartition(".")[2] for path in fields}
    return [path if last[short[path]] > 1 else short[path] for path in fields]


def _named(found: Sweep, place: int) -> str:
    """A point as one would type it, and what it gives."""
    row = found.rows[place]
    words = " ".join(f"--set {path}={written(value)}" for path, value in row.values.items())
    kpis = [kpi for kpi in found.kpis if kpi.key in found.frontier_by]
    figures = [show(row.outcome.kpis[kpi.key], kpi.unit) for kpi in kpis]
    return f"{words}: {', '.join(figures)}"
