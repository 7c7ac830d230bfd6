"""A Trace as files and back: its spans as a table, the rest as JSON, field by field as the types
say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from twin.answers.parquet import Column, from_parquet, to_parquet
from twin.engine.trace import Spans, Trace

SPANS, REST = "trace.parquet", "trace.json"
"""The files of a Trace."""
_UNITS = {"start": "ns", "end": "ns"}


def trace_files(trace: Trace, about: Mapping[str, str]) -> dict[str, bytes]:
    """The files that hold a trace, by name; `about` is written into the table's metadata."""
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
    return {SPANS: to_parquet(columns, about), REST: json.dumps(rest).encode()}


def trace_of(files: Mapping[str, bytes]) -> Trace:
    """The trace that was written. Raises whatever the readers raise at files that are none."""
    columns, _ = from_parquet(files[SPANS])
    rest = json.loads(files[REST])
    known = {name: kind.validate_python(rest[name]) for name, kind in _rest().items()}
    return Trace(spans=Spans(**{one.name: columns[one.name] for one in fields(Spans)}), **known)


@cache
def _rest() -> dict[str, TypeAdapter[Any]]:
    """What reads and writes each field of a Trace beside its spans."""
    hints = get_type_hints(Trace)
    return {one.name: TypeAdapter(hints[one.name]) for one in fields(Trace) if one.name != "spans"}
