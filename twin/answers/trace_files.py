"""A Trace as files: its spans as a table, the rest as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, get_type_hints

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from twin.engine.trace import Spans, Trace

Content: TypeAlias = bytes | Callable[[BinaryIO], None]
"""Of a file: its bytes, or what writes them."""
SPANS, REST = "trace.parquet", "trace.json"
"""The files of a Trace."""
_UNITS = {"start": "ns", "end": "ns"}


def trace_files(trace: Trace, about: Mapping[str, str]) -> dict[str, Content]:
    """The files that hold a trace, by name; `about` is written into the table's metadata."""
    from twin.answers.parquet import Column, write_parquet  # noqa: PLC0415

    columns = {
        one.name: Column(
            getattr(trace.spans, one.name),
            {"unit": _UNITS[one.name]} if one.name in _UNITS else {},
        )
        for one in fields(Spans)
    }
    rest = {
        name: kind.dump_python(getattr(trace, name), mode="json") for name, kind in _rest().items()
    }
    return {
        SPANS: lambda file: write_parquet(file, columns, about),
        REST: json.dumps(rest).encode(),
    }


def trace_of(files: Mapping[str, bytes]) -> Trace:
    """The trace that was written. Raises whatever the readers raise at files that are none."""
    from twin.answers.parquet import from_parquet  # noqa: PLC0415

    columns, _ = from_parquet(files[SPANS])
    return Trace(
        spans=Spans(**{one.name: columns[one.name] for one in fields(Spans)}), **_known(files[REST])
    )


def part_of(spans: Path, rest: bytes, window: tuple[int, int], roles: range) -> Trace:
    """What some neighbouring roles do in a window (ns), as `Trace.within` has it. Of the spans'
    file only the row groups that may hold it are read."""
    from twin.answers.parquet import row_groups  # noqa: PLC0415

    begin, end = window
    ranges = {"role": (roles.start, roles.stop - 1), "start": (0, end), "end": (begin, 2**62)}
    nothing: dict[str, NDArray[Any]] = {one.name: np.zeros(0, np.int32) for one in fields(Spans)}
    parts = [(np.zeros(0, np.int64), nothing)]
    for first, columns in row_groups(spans, ranges):
        inside = (columns["end"] > begin) & (columns["start"] < end)
        inside &= (columns["role"] >= roles.start) & (columns["role"] < roles.stop)
        kept = np.flatnonzero(inside)
        parts.append((first + kept, {name: one[kept] for name, one in columns.items()}))
    parts = parts[1:] or parts
    rows = np.concatenate([own for own, _ in parts])
    known, shown = _known(rest), {n: np.concatenate([own[n] for _, own in parts]) for n in nothing}
    critical = np.array(known["critical"], np.int64)
    known["critical"] = tuple(np.searchsorted(rows, critical[np.isin(critical, rows)]).tolist())
    return replace(Trace(spans=Spans(**shown), **known), shown=window)


def _known(rest: bytes) -> dict[str, Any]:
    """Each field of a Trace beside its spans."""
    read = json.loads(rest)
    return {name: kind.validate_python(read[name]) for name, kind in _rest().items()}


@cache
def _rest() -> dict[str, TypeAdapter[Any]]:
    """What reads and writes each field of a Trace beside its spans."""
    hints = get_type_hints(Trace)
    return {one.name: TypeAdapter(hints[one.name]) for one in fields(Trace) if one.name != "spans"}
