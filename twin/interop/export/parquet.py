"""The spans as one table, units in the columns' metadata; the JSON report in the table's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twin.answers import Run
from twin.answers.parquet import Column, write_parquet
from twin.answers.trace_files import Content
from twin.interop.export.base import UNITS, Stamp, Texts, about, span_columns
from twin.loading.files import table
from twin.reports import Report

SUFFIX = ".parquet"
PARTS = ("",)
_MEANING: dict[str, Any] = table(__name__, "_MEANING")


def files(run: Run, stamp: Stamp) -> dict[str, Content]:
    """One table, written row group by row group; its metadata has the stamp (`twin.*`) and the
    report (`twin.reports`)."""
    known = {f"twin.{name}": text for name, text in about(run, stamp).items()}
    known["twin.reports"] = json.dumps(_timeless(run.report), allow_nan=False)
    columns = {name: _column(name, one) for name, one in span_columns(run.trace).items()}
    return {"": lambda file: write_parquet(file, columns, known)}


def _column(name: str, column: Any) -> Column:
    said = {"unit": UNITS.get(name), "meaning": _MEANING.get(name)}
    known = {key: text for key, text in said.items() if text}
    if isinstance(column, Texts):
        return Column(column.values, known, column.words)
    missing = column < 0 if name in ("chunk", "microbatch") else None
    return Column(column, known, missing=missing)


def _timeless(report: Report) -> Mapping[str, Any]:
    """The report without what differs from one playing to the next."""
    document = report.to_json()
    varying = ("created", "wall_seconds")
    known = {key: one for key, one in document["provenance"].items() if key not in varying}
    return document | {"provenance": known}
