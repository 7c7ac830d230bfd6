"""Program to Trace: play the step, or as much of it as proves that the rest repeats."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from twin.engine.breakdown import beginnings, critical_path, steady_spans, stretches
from twin.engine.events import play
from twin.engine.graph import NONE, Graph, Indices
from twin.engine.handed import Part, taken
from twin.engine.played import Played, Progress, Times
from twin.engine.program import STREAMS, Program
from twin.engine.steady import Period, enough_microbatches, prove, worth_playing
from twin.engine.trace import Spans, Trace
from twin.engine.unroll import unroll


def simulate(
    program: Program,
    progress: Progress | None = None,
    *,
    extrapolate: bool = True,
) -> Trace:
    """Play one step. Long steps are played until their steady state is proven and then
    extrapolated, unless `extrapolate` is off; what is not proven to repeat is played in full."""
    with _keeping_all():
        known = taken(program) if extrapolate else None
        return traced(program, *(known or _by_events(program, progress, extrapolate)))


def step_ns(program: Program) -> tuple[int, Part]:
    """How long a step takes, as `simulate` says, and what of it was played."""
    with _keeping_all():
        part = graph, played, period = _by_events(program, None, True)
        played_ns = int((played.end - beginnings(graph, played, program)[graph.role]).max())
        repeats, length = _repeated(program, graph, period)
        return played_ns + repeats * length, part


@contextmanager
def _keeping_all() -> Generator[None]:
    """Playing makes millions of small objects and drops none, so looking for garbage among them, a
    fifth of the time, finds nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _by_events(program: Program, progress: Progress | None, extrapolate: bool) -> Part:
    microbatches = enough_microbatches(program) if extrapolate and program.repeats else None
    while microbatches is not None:
        graph = unroll(program, microbatches)
        played = play(graph, program, progress)
        period = prove(graph.marks, played, program, microbatches)
        rest = 0 if period is None else (program.microbatches - microbatches) % period.microbatches
        if period is not None and rest == 0:
            return graph, played, period
        microbatches = worth_playing(program, microbatches + rest if rest else 2 * microbatches)
    graph = unroll(program, program.microbatches)
    return graph, play(graph, program, progress), None


def traced(program: Program, graph: Graph, played: Played, period: Period | None = None) -> Trace:
    """What happened in a played step; `period`: the part of it that repeats."""
    begins = beginnings(graph, played, program)
    played_ns = int((played.end - begins[graph.role]).max())
    done = int(graph.microbatch.max()) + 1
    extra, length = _repeated(program, graph, period)
    windows = np.array([0] * len(begins) if period is None else period.windows)
    step_ns = played_ns + extra * length
    ends = begins + played_ns
    spent = stretches(graph, played, ends)
    first, last = steady_spans(graph, played)
    early, late = spent.sums(begins, first), spent.sums(last, ends)
    rows = spent.sums(begins, ends)
    steady = spent.sums(windows, windows + length) if extra else rows
    times = _times(graph, played, (windows, length, extra))
    carried, busy = program.wiring.used(_carried(program, graph, times), step_ns)
    spans, rows_of, names = _spans(graph, played)
    critical = rows_of[critical_path(graph, played, begins)]
    window_start = int(windows.max())
    return Trace(
        spans=spans,
        names=names,
        roles=tuple(role.name for role in program.roles),
        ranks=tuple(role.ranks for role in program.roles),
        step_ns=step_ns,
        breakdown_ns=tuple(_sum(*pair, extra) for pair in zip(rows, steady, strict=True)),
        ramp_ns=tuple(_sum(*pair) for pair in zip(early, late, strict=True)),
        link_bytes=carried,
        link_busy=busy,
        events=played.events,
        played_microbatches=done,
        microbatches=program.microbatches,
        repeats=extra + 1,
        window_start=window_start,
        window_end=window_start + length,
        critical=tuple(critical[critical != NONE].tolist()),
    )


def _repeated(program: Program, graph: Graph, period: Period | None) -> tuple[int, int]:
    """How often a played step's period comes again, and its nanoseconds."""
    if period is None:
        return 0, 0
    done = int(graph.microbatch.max()) + 1
    return (program.microbatches - done) // period.microbatches, period.length_ns


def _sum(one: dict[str, int], other: dict[str, int], times: int = 1) -> dict[str, int]:
    """One row, and so many times another."""
    return {cause: value + times * other[cause] for cause, value in one.items()}


def _times(graph: Graph, played: Played, repeated: tuple[Times, int, int]) -> Times:
    """How often each operation runs in the step: once, and those of the window that repeats so many
    times more."""
    windows, length, extra = repeated
    since = played.start - windows[graph.role]
    return 1 + extra * ((since >= 0) & (since < length))


def _carried(program: Program, graph: Graph, times: Times) -> list[float]:
    """Bytes that each link carries per step."""
    sends = np.nonzero(graph.bundle != NONE)[0]
    # Sums of whole numbers below 2^53 are exact; those of bytes depend on the order.
    counts = np.bincount(graph.bundle[sends], times[sends]).astype(np.int64)
    paths, total = [*graph.bundles.paths], [0.0] * len(program.wiring.capacity)
    for bundle in _as_they_come(graph.bundle[sends]):
        times_sent = int(counts[bundle])
        for size, path in graph.bundles.flows[bundle]:
            for link, weight in zip(*paths[path], strict=True):
                total[link] += size * times_sent * weight
    return total


def _as_they_come(codes: Indices) -> list[int]:
    """Small codes in the order in which they first occur."""
    first = np.full(int(codes.max(initial=-1)) + 1, len(codes))
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # the first of each stays
    order: list[int] = np.argsort(first)[: np.count_nonzero(first < len(codes))].tolist()
    return order


def _spans(graph: Graph, played: Played) -> tuple[Spans, NDArray[np.int64], tuple[str, ...]]:
    """Operations that took time, by role, stream and start; the row of each operation, `NONE` for
    those that took none; and all names, as they come."""
    named = _as_they_come(graph.name)
    renamed = np.full(len(graph.names), NONE, np.int32)
    renamed[named] = np.arange(len(named))
    order = np.nonzero(played.end > played.start)[0]
    # Operations of a stream start in their order.
    lane = graph.role[order].astype(np.int64) * len(STREAMS) + graph.stream[order]
    order = order[np.argsort(lane.astype(np.min_scalar_type(lane.max(initial=0))), kind="stable")]
    rows = np.full(len(graph), NONE, np.int64)
    rows[order] = np.arange(len(order))
    spans = Spans(
        role=graph.role[order],
        stream=graph.stream[order].astype(np.int8),
        name=renamed[graph.name[order]],
        chunk=graph.chunk[order],
        microbatch=graph.microbatch[order],
        start=played.start[order],
        end=played.end[order],
    )
    return spans, rows, tuple(graph.names[code] for code in named)
