"""CSV and Parquet, read back by their own readers."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from twin.answers import Run
from twin.engine.program import STREAMS
from twin.interop.export.base import write


def rows(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The comments and the rows of a CSV file."""
    lines = path.read_text().splitlines()
    comments = [line for line in lines if line.startswith("#")]
    assert lines[: len(comments)] == comments, "comments stand at the top"
    assert not any("#" in line for line in lines[len(comments) :])
    return comments, list(csv.DictReader(lines[len(comments) :]))


def test_the_spans_as_csv_are_the_trace_with_units_in_the_header(small: Run, out: Path) -> None:
    path, _ = write(small, "csv", out / "step.csv")
    _, found = rows(path)
    spans, trace = small.trace.spans, small.trace
    assert [int(row["start [ns]"]) for row in found] == spans.start.tolist()
    assert [int(row["end [ns]"]) for row in found] == spans.end.tolist()
    assert [row["role"] for row in found] == [trace.roles[one] for one in spans.role]
    assert [row["stream"] for row in found] == [STREAMS[one] for one in spans.stream]
    assert [row["name"] for row in found] == [trace.names[one] for one in spans.name]
    assert [int(row["chunk"] or -1) for row in found] == spans.chunk.tolist()
    assert [int(row["microbatch"] or -1) for row in found] == spans.microbatch.tolist()
    marked = {at for at, row in enumerate(found) if row["critical"] == "1"}
    assert marked == set(trace.critical)


def test_the_key_figures_as_csv_are_one_row_with_units_in_the_header(small: Run, out: Path) -> None:
    _, path = write(small, "csv", out / "my.step.csv")
    assert path == out / "my.step-kpis.csv"
    _, (row,) = rows(path)
    report = small.report
    assert float(row["step_seconds [s]"]) == report.kpis["step_seconds"]
    assert float(row["mfu [fraction]"]) == report.kpis["mfu"]
    assert float(row["peak_device_bytes [bytes]"]) == report.kpis["peak_device_bytes"]
    parts = [float(row[f"{cause} [s]"]) for cause in report.breakdown_ns]
    assert sum(parts) == pytest.approx(report.step_ns / 1e9, rel=1e-12)


def test_the_parquet_table_is_the_trace_with_units_and_the_report_in_its_metadata(
    small: Run, out: Path
) -> None:
    (path,) = write(small, "parquet", out / "step.parquet")
    table, spans, trace = pq.read_table(path), small.trace.spans, small.trace
    np.testing.assert_array_equal(table["start"], spans.start)
    np.testing.assert_array_equal(table["end"], spans.end)
    assert table["role"].to_pylist() == [trace.roles[one] for one in spans.role]
    assert table["stream"].to_pylist() == [STREAMS[one] for one in spans.stream]
    assert table["name"].to_pylist() == [trace.names[one] for one in spans.name]
    for name in ("chunk", "microbatch"):
        np.testing.assert_array_equal(table[name].fill_null(-1), getattr(spans, name))
    assert np.flatnonzero(table["critical"]).tolist() == sorted(set(trace.critical))
    for name in ("start", "end"):
        assert table.schema.field(name).metadata[b"unit"] == b"ns"
    report = json.loads(table.schema.metadata[b"twin.reports"])
    assert report["kpis"] == small.report.to_json()["kpis"]
    assert report["breakdown_ns"] == dict(small.report.breakdown_ns)
