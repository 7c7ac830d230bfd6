"""A timeline for ui.perfetto.dev: one process per rank, one track per stream, memory as a counter.

Trace events as JSON ("Trace Event Format", Google), which Perfetto, chrome://tracing and
trace-analysis libraries read. Times are exact: microseconds with three decimals are nanoseconds.
Spans of a stream follow one another, so slices of a track never overlap. What lies on the critical
path is of the category `critical`, and stands once more on a track of its own at the top.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from twin.answers import Run
from twin.engine.program import STREAMS
from twin.engine.trace import Trace
from twin.interop.export.base import Stamp, about
from twin.reports.memory_series import memory_series

SUFFIX = ".perfetto.json.gz"
PARTS = ("",)

_CRITICAL = 1
"""Process of the critical path; the ranks follow. Zero would be the kernel's idle task."""
_TRACKS = 100
"""Threads are `process x _TRACKS + stream`: readers take their numbers for unique."""


def files(run: Run, stamp: Stamp) -> dict[str, bytes]:
    """One file of trace events."""
    return {"": timeline(run.trace, about(run, stamp), _memory(run))}


def timeline(trace: Trace, known: Mapping[str, str], more: Iterable[str] = ()) -> bytes:
    """The file of a trace, simulated or measured: what is `known` of it, its spans, and `more`
    events."""
    head = json.dumps({"displayTimeUnit": "ns", "otherData": dict(known)})
    lines = ",\n".join([*_tracks(trace), *_slices(trace), *_path(trace), *more])
    return f'{head[:-1]}, "traceEvents": [\n{lines}\n]}}\n'.encode()


def _tracks(trace: Trace) -> Iterator[str]:
    """Names and order of the processes and threads."""
    spans = trace.spans
    if trace.critical:
        yield from _named(_CRITICAL, "critical path", {_CRITICAL * _TRACKS: "critical path"})
    for role, name in enumerate(trace.roles):
        used = np.unique(spans.stream[spans.role == role]).tolist()
        if not used:
            continue
        yield from _named(
            _process(role), name, {_process(role) * _TRACKS + one: STREAMS[one] for one in used}
        )


def _named(process: int, name: str, threads: dict[int, str]) -> Iterator[str]:
    yield _about(process, 0, "process_name", {"name": name})
    yield _about(process, 0, "process_sort_index", {"sort_index": process})
    for thread, stream in threads.items():
        yield _about(process, thread, "thread_name", {"name": stream})
        yield _about(process, thread, "thread_sort_index", {"sort_index": thread})


def _about(process: int, thread: int, what: str, values: dict[str, Any]) -> str:
    return json.dumps({"ph": "M", "pid": process, "tid": thread, "name": what, "args": values})


def _slices(trace: Trace) -> Iterator[str]:
    """One slice per span. Written by hand: a hundred thousand of them in a fraction of a second."""
    spans = trace.spans
    names = [json.dumps(name) for name in trace.names]
    marks = np.zeros(len(spans.start), dtype=np.bool_)
    marks[list(trace.critical)] = True
    columns = (spans.role, spans.stream, spans.name, spans.chunk, spans.microbatch)
    times = (spans.start, spans.end - spans.start, marks)
    for role, stream, name, chunk, microbatch, start, length, critical in zip(
        *(column.tolist() for column in (*columns, *times)), strict=True
    ):
        process = _process(role)
        yield (
            f'{{"ph":"X","pid":{process},"tid":{process * _TRACKS + stream},'
            f'"ts":{_micro(start)},"dur":{_micro(length)},"name":{names[name]},'
            f'"cat":"{STREAMS[stream]}{",critical" if critical else ""}"'
            f"{_arguments(chunk, microbatch)}}}"
        )


def _arguments(chunk: int, microbatch: int) -> str:
    """Chunk and micro-batch of a pass; what closes the step has neither."""
    if chunk < 0 and microbatch < 0:
        return ""
    known = [("chunk", chunk), ("microbatch", microbatch)]
    inside = ",".join(f'"{name}":{value}' for name, value in known if value >= 0)
    return f',"args":{{{inside}}}'


def _path(trace: Trace) -> Iterator[str]:
    """The critical path, each slice named after its rank: one releases the next, so they never
    overlap either."""
    spans = trace.spans
    for row in trace.critical:
        start, end = int(spans.start[row]), int(spans.end[row])
        name = f"{trace.roles[spans.role[row]]}: {trace.names[spans.name[row]]}"
        yield (
            f'{{"ph":"X","pid":{_CRITICAL},"tid":{_CRITICAL * _TRACKS},"ts":{_micro(start)},'
            f'"dur":{_micro(end - start)},"name":{json.dumps(name)},"cat":"critical_path"'
            f"{_arguments(int(spans.chunk[row]), int(spans.microbatch[row]))}}}"
        )


def _memory(run: Run) -> Iterator[str]:
    """Device bytes of each rank over the step, by the ledger's categories that change, and its
    bytes in host memory; nothing beside a part of the spans."""
    roles = len(run.trace.roles) if run.trace.shown is None else 0
    for role in range(roles):
        series = memory_series(run.plan, run.trace, role)
        changing = {name: sizes for name, sizes in series.categories.items() if np.ptp(sizes) > 0}
        shown = {"device memory": series.total, **changing}
        if series.host:
            shown["host memory"] = series.host_total
        for name, sizes in shown.items():
            label = json.dumps(f"{name.replace('_', ' ')} (bytes)")
            for at, size in zip(series.times.tolist(), sizes.tolist(), strict=True):
                yield (
                    f'{{"ph":"C","pid":{_process(role)},"ts":{_micro(at)},"name":{label},'
                    f'"args":{{"bytes":{round(size)}}}}}'
                )


def _process(role: int) -> int:
    return _CRITICAL + 1 + role


def _micro(ns: int) -> str:
    """Nanoseconds as microseconds, exactly."""
    whole, rest = divmod(ns, 1000)
    return f"{whole}.{rest:03d}" if rest else str(whole)
