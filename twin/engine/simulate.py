"""Program to Trace: play the step, or as much of it as proves that the rest repeats."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

import numpy as np

from twin.engine.breakdown import beginnings, critical_path, pieces, steady_span, sums
from twin.engine.events import Played, Progress, play
from twin.engine.graph import Graph, unroll
from twin.engine.longest_path import copies_meet, longest_path
from twin.engine.program import Program
from twin.engine.steady import Period, enough_microbatches, prove, worth_playing
from twin.engine.trace import Spans, Trace


def simulate(
    program: Program,
    progress: Progress | None = None,
    *,
    fidelity: Literal["events", "fast"] = "events",
    extrapolate: bool = True,
) -> Trace:
    """Play one step. Long steps are played until their steady state is proven and then
    extrapolated, unless `extrapolate` is off; what is not proven to repeat is played in full.
    `fast` takes the longest path instead, where every transfer has its links to itself; where
    copies wait for one another in host memory, or GPUs differ, which that leaves out, it is the
    event engine."""
    with _keeping_all():
        if fidelity == "fast" and not program.uneven:
            walked = longest_path(program, extrapolate=extrapolate)
            if not copies_meet(walked):
                return walked
        return _by_events(program, progress, extrapolate)


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


def _by_events(program: Program, progress: Progress | None, extrapolate: bool) -> Trace:
    microbatches = enough_microbatches(program) if extrapolate else None
    while microbatches is not None:
        graph = unroll(program, microbatches)
        played = play(graph, program, progress)
        period = prove(graph, played, program, microbatches)
        rest = 0 if period is None else (program.microbatches - microbatches) % period.microbatches
        if period is not None and rest == 0:
            return _trace(program, graph, played, period)
        microbatches = worth_playing(program, microbatches + rest if rest else 2 * microbatches)
    graph = unroll(program, program.microbatches)
    return _trace(program, graph, play(graph, program, progress), None)


def _trace(program: Program, graph: Graph, played: Played, period: Period | None) -> Trace:
    begins = beginnings(graph, played, program)
    ends = zip(graph.role, played.end, strict=True)
    played_ns = max(end - begins[role] for role, end in ends)
    done = max(graph.microbatch) + 1
    extra = 0 if period is None else (program.microbatches - done) // period.microbatches
    length = 0 if period is None else period.length_ns
    step_ns = played_ns + extra * length
    rows: list[dict[str, int]] = []
    ramps: list[dict[str, int]] = []
    for role in range(len(program.roles)):
        begin, end = begins[role], begins[role] + played_ns
        stretches = pieces(graph, played, role, end)
        row = sums(stretches, begin, end)
        first, last = steady_span(graph, played, role)
        ramp = sums(stretches, begin, first)
        late = sums(stretches, last, end)
        ramps.append({name: value + late[name] for name, value in ramp.items()})
        if period is not None:
            window = sums(stretches, period.windows[role], period.windows[role] + length)
            row = {name: value + extra * window[name] for name, value in row.items()}
        rows.append(row)
    carried, busy = program.wiring.used(_carried(program, graph, played, (period, extra)), step_ns)
    spans, rows_of = _spans(graph, played)
    window_start = 0 if period is None else max(period.windows)
    return Trace(
        spans=spans,
        names=tuple(dict.fromkeys(graph.name)),
        roles=tuple(role.name for role in program.roles),
        ranks=tuple(role.ranks for role in program.roles),
        step_ns=step_ns,
        breakdown_ns=tuple(rows),
        ramp_ns=tuple(ramps),
        link_bytes=carried,
        link_busy=busy,
        events=played.events,
        played_microbatches=done,
        microbatches=program.microbatches,
        repeats=extra + 1,
        window_start=window_start,
        window_end=window_start + length,
        critical=tuple(
            rows_of[op] for op in critical_path(graph, played, begins) if rows_of[op] >= 0
        ),
    )


def _carried(
    program: Program, graph: Graph, played: Played, repeated: tuple[Period | None, int]
) -> list[float]:
    """Bytes that each link carries per step: what was played, and the period that repeats so many
    times more."""
    period, extra = repeated
    windows = [(0, 0)] * len(program.roles)
    if period is not None:
        windows = [(start, start + period.length_ns) for start in period.windows]
    # Instances of a template share their flows: count first, add up after.
    times: Counter[int] = Counter()
    for role, start, flows in zip(graph.role, played.start, graph.flows, strict=True):
        if flows:
            first, last = windows[role]
            times[id(flows)] += 1 + extra if first <= start < last else 1
    total = [0.0] * len(program.wiring.capacity)
    for flows in {id(flows): flows for flows in graph.flows}.values():
        for size, links, weights in flows:
            for link, weight in zip(links, weights, strict=True):
                total[link] += size * times[id(flows)] * weight
    return total


def _spans(graph: Graph, played: Played) -> tuple[Spans, list[int]]:
    """Operations that took time, by role, stream and start; and the row of each operation, -1 for
    those that took none."""
    names = {name: i for i, name in enumerate(dict.fromkeys(graph.name))}
    start = np.asarray(played.start, dtype=np.int64)
    end = np.asarray(played.end, dtype=np.int64)
    role = np.asarray(graph.role, dtype=np.int32)
    stream = np.asarray(graph.stream, dtype=np.int8)
    order = np.lexsort((start, stream, role))
    order = order[end[order] > start[order]]
    name = np.fromiter(map(names.__getitem__, graph.name), dtype=np.int32, count=len(start))
    rows = np.full(len(start), -1, dtype=np.int64)
    rows[order] = np.arange(len(order))
    spans = Spans(
        role=role[order],
        stream=stream[order],
        name=name[order],
        chunk=np.asarray(graph.chunk, dtype=np.int32)[order],
        microbatch=np.asarray(graph.microbatch, dtype=np.int32)[order],
        start=start[order],
        end=end[order],
    )
    return spans, rows.tolist()
