"""A measured and a simulated step as one trace, so that one axis of time shows both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from twin.engine.trace import Spans, Trace
from twin.evidence.measured.layout import Layout

_COLUMNS: Final = ("role", "stream", "name", "chunk", "microbatch", "start", "end")
_SIDES: Final = ("measured", "predicted")
_MOST: Final = 1_000_000
"""Spans up to which repetitions that were not played are written out."""


def together(layout: Layout, measured: Trace, predicted: Trace, most: int | None = None) -> Trace:
    """Both steps from their beginnings on, stage by stage, the measured ranks first; of each side
    and stage at most so many ranks where `most` is given. It has no critical path."""
    traces = (measured, unfolded(predicted))
    width = max(1, len(predicted.roles) // layout.mesh.pipeline)
    stages = (layout.stage, [role // width for role in range(len(predicted.roles))])
    places = [
        (stage, side, role)
        for side, of_roles in enumerate(stages)
        for role, stage in enumerate(of_roles)
        if most is None or list(of_roles[:role]).count(stage) < most
    ]
    places.sort()
    names = tuple(dict.fromkeys(name for one in traces for name in one.names))
    own = [{one[2]: at for at, one in enumerate(places) if one[1] == side} for side in (0, 1)]
    parts = [_renumbered(one, own[side], names) for side, one in enumerate(traces)]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS}
    order = np.lexsort((joined["start"], joined["stream"], joined["role"]))
    return Trace(
        spans=Spans(**{name: column[order] for name, column in joined.items()}),
        names=names,
        roles=tuple(f"{traces[side].roles[role]}, {_SIDES[side]}" for _, side, role in places),
        step_ns=max(one.step_ns for one in traces),
        breakdown_ns=tuple(traces[side].breakdown_ns[role] for _, side, role in places),
        link_bytes={},
        link_busy={},
        events=sum(one.events for one in traces),
        played_microbatches=measured.microbatches,
        microbatches=measured.microbatches,
    )


def unfolded(trace: Trace) -> Trace:
    """The trace with the repetitions of its steady window written out, and everything behind them
    at its true time; as it is where that would be too much."""
    spans, length = trace.spans, trace.window_end - trace.window_start
    inside = (spans.start >= trace.window_start) & (spans.start < trace.window_end)
    more = trace.repeats - 1
    if more <= 0 or len(spans.start) + more * int(inside.sum()) > _MOST:
        return trace
    behind = spans.start >= trace.window_end
    batches = (trace.microbatches - trace.played_microbatches) // more
    parts = [_shifted(spans, ~behind, 0, 0)]
    parts += [_shifted(spans, inside, one * length, one * batches) for one in range(1, more + 1)]
    parts.append(_shifted(spans, behind, more * length, more * batches))
    joined = {name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS}
    order = np.lexsort((joined["start"], joined["stream"], joined["role"]))
    whole = Spans(**{name: column[order] for name, column in joined.items()})
    return replace(trace, spans=whole, repeats=1, window_start=0, window_end=0, critical=())


def _shifted(
    spans: Spans, rows: NDArray[np.bool_], later: int, batches: int
) -> dict[str, NDArray[Any]]:
    """Some spans, later and of later micro-batches."""
    columns = _columns(spans)
    found = {name: column[rows] for name, column in columns.items()}
    found["start"], found["end"] = found["start"] + later, found["end"] + later
    passes = found["microbatch"] >= 0
    found["microbatch"] = found["microbatch"] + np.where(passes, batches, 0).astype(np.int32)
    return found


def _renumbered(
    trace: Trace, places: dict[int, int], names: tuple[str, ...]
) -> dict[str, NDArray[Any]]:
    """The spans of the roles that have a place, with the numbers of all names."""
    place = np.array([places.get(role, -1) for role in range(len(trace.roles))], np.int32)
    index = np.array([names.index(name) for name in trace.names] or [0], np.int32)
    columns = _columns(trace.spans)
    kept = place[columns["role"]] >= 0
    found = {name: column[kept] for name, column in columns.items()}
    found["role"], found["name"] = place[found["role"]], index[found["name"]]
    return found


def _columns(spans: Spans) -> dict[str, NDArray[Any]]:
    return {name: getattr(spans, name) for name in _COLUMNS}
