"""Two tables with units in their headers: the spans, and beside them one row of key figures.

Both begin with comments (`#`) that say where they came from: `pandas.read_csv(path, comment="#")`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from twin.answers import Run
from twin.answers.csv_text import to_csv
from twin.interop.export.base import UNITS, Stamp, Texts, about, span_columns
from twin.reports import KPIS, Report
from twin.reports.breakdown import in_seconds

SUFFIX = ".csv"
PARTS = ("", "-kpis")


def files(run: Run, stamp: Stamp) -> dict[str, bytes]:
    """The spans, and the key figures with the breakdown, as one row."""
    columns = span_columns(run.trace)
    header = [f"{name} [{UNITS[name]}]" if name in UNITS else name for name in columns]
    rows = zip(*(_cells(name, column) for name, column in columns.items()), strict=True)
    comments = [f"# {name}: {text}" for name, text in about(run, stamp).items()]
    figures = _figures(run.report)
    return {
        "": _text(comments, header, rows),
        "-kpis": _text(comments, list(figures), [list(figures.values())]),
    }


def _cells(name: str, column: Any) -> list[Any]:
    """A column as text and numbers; empty where a span belongs to no chunk or micro-batch."""
    if isinstance(column, Texts):
        return np.array(column.words, dtype=np.object_)[column.values].tolist()
    if column.dtype == np.bool_:
        return column.astype(np.int8).tolist()
    if name in ("chunk", "microbatch"):
        return np.where(column < 0, "", column.astype(np.str_)).tolist()
    return column.tolist()


def _figures(report: Report) -> dict[str, Any]:
    """Header and value of everything that sums up a run: one row, so that runs can be stacked."""
    shares = {"%": "fraction"}
    return {
        "scenario": report.name.replace("#", ""),
        "hash": report.hash,
        "fits": int(report.fits),
        **{f"{kpi.key} [{shares.get(kpi.unit, kpi.unit)}]": report.kpis[kpi.key] for kpi in KPIS},
        **{f"{cause} [s]": value for cause, value in in_seconds(report.breakdown_ns).items()},
    }


def _text(comments: Sequence[str], header: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    told = "".join(f"{' '.join(line.split())}\n" for line in comments)
    return f"{told}{to_csv(header, rows)}".encode()
