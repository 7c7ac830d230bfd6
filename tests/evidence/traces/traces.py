"""Traces as PyTorch's profiler writes them, made by hand from rows that are easy to read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Row = tuple[Any, ...]
"""Name, stream, start and end in microseconds, when the host has launched it; then what a
collective says."""


def kernels(rows: Iterable[Row], thread: int = 7) -> list[dict[str, Any]]:
    """Kernels, with the calls that launched them."""
    found: list[dict[str, Any]] = []
    for number, (name, stream, start, end, issued, *told) in enumerate(rows, 1):
        known = {"device": 0, "stream": stream, "correlation": number, **(told[0] if told else {})}
        found += [
            event("cuda_runtime", "cudaLaunchKernel", thread, issued - 2, issued, number),
            event("kernel", name, stream, start, end) | {"pid": 0, "args": known},
        ]
    return found


def event(
    kind: str, name: str, thread: int, start: float, end: float, number: int | None = None
) -> dict[str, Any]:
    """A complete event of the host."""
    about = {} if number is None else {"correlation": number}
    times = {"ts": start, "dur": end - start}
    return {"ph": "X", "cat": kind, "name": name, "pid": 9, "tid": thread, **times, "args": about}


def trace_file(
    path: Path, events: Sequence[dict[str, Any]], rank: int | None = None, ranks: int = 2
) -> Path:
    """A trace of one rank."""
    head: dict[str, Any] = {"deviceProperties": [{"id": 0, "name": "NVIDIA H800"}]}
    if rank is not None:
        head["distributedInfo"] = {"rank": rank, "world_size": ranks}
    path.write_text(json.dumps({**head, "traceEvents": events, "traceName": "x.json"}, indent=1))
    return path
