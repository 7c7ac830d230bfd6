"""Timelines as trainers write them, made by hand from rows that are easy to read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ORIGIN = 1_790_000_000_000_000_000
"""When the runs of the tests began, in ns of the ranks' clock."""
MS = 1_000_000
Row = tuple[Any, ...]
"""Stream, name, chunk, micro-batch, start and end in ms since the run began; bytes and group may
follow."""


def header(rank: int, ranks: int, stage: int, **other: Any) -> dict[str, Any]:
    """The first line of a rank's file."""
    known = {"version": 1, "clock": "unix_ns", "created": "2026-11-20T12:00:00+00:00"}
    section = {"pipeline": stage + 1, "expert": 1}
    about = {"parallel": section, "model": "kimi-k2-nano", "microbatches": 2}
    places = {"rank": rank, "ranks": ranks, "stage": stage}
    return {"kind": "header"} | known | places | about | other


def span(step: int, row: Row) -> dict[str, Any]:
    """The line of a span."""
    stream, name, chunk, microbatch, start, end, *rest = row
    known = {"kind": "span", "step": step, "stream": stream, "name": name, "chunk": chunk}
    times = {"microbatch": microbatch, "start": at(start), "end": at(end)}
    return known | times | dict(zip(("bytes", "group"), rest, strict=False))


def step(number: int, start: float, end: float) -> dict[str, Any]:
    """The line of a step."""
    return {"kind": "step", "step": number, "start": at(start), "end": at(end)}


def arrival(number: int, name: str, chunk: int, microbatch: int, came: float) -> dict[str, Any]:
    """The line of a message that came."""
    place = {"chunk": chunk, "microbatch": microbatch, "at": at(came)}
    return {"kind": "arrival", "step": number, "name": name, **place}


def at(ms: float) -> int:
    """Milliseconds since the run began, by the ranks' clock."""
    return ORIGIN + round(ms * MS)


def write(folder: Path, ranks: Sequence[Sequence[Mapping[str, Any]]]) -> Path:
    """Write the lines of every rank; the run's folder."""
    timeline = folder / "timeline"
    timeline.mkdir(parents=True, exist_ok=True)
    for rank, lines in enumerate(ranks):
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (timeline / f"rank-{rank:05d}.jsonl").write_text(text)
    return folder


def run_of(
    folder: Path,
    rows: Sequence[Sequence[Row]],
    windows: Sequence[tuple[float, float]],
    **about: Any,
) -> Path:
    """A run of one step, number 1, from the rows of each rank and the times of its own step."""
    parallel = {"pipeline": len(rows), "expert": 1} | about.pop("parallel", {})
    stage_ranks = len(rows) // parallel["pipeline"]
    lines = [
        [
            header(rank, len(rows), rank // stage_ranks, parallel=parallel, **about),
            *(span(1, row) for row in own),
            step(1, *windows[rank]),
        ]
        for rank, own in enumerate(rows)
    ]
    return write(folder, lines)


def pipeline(
    folder: Path, steps: int = 5, microbatches: int = 4, slower: float = 1.0, **about: Any
) -> Path:
    """A run of two stages under GPipe: F 10 ms, B 20 ms, a message 2 ms, the closing 7 ms, and 1 ms
    from step to step. The first step takes three times as long, and each one a little more than the
    one before. `slower` stretches the second stage's passes."""
    lines = [
        [header(0, 2, 0, parallel=_GPIPE, microbatches=microbatches, **about)],
        [header(1, 2, 1, parallel=_GPIPE, microbatches=microbatches, **about)],
    ]
    begin = 0.0
    for number in range(1, steps + 1):
        pace = 3.0 if number == 1 else 1.0 + number / 1000
        rows, end = _gpipe(microbatches, (1.0, slower))
        for rank, own in enumerate(rows):
            scaled = [(*row[:4], begin + row[4] * pace, begin + row[5] * pace) for row in own]
            lines[rank] += [span(number, row) for row in scaled]
            lines[rank].append(step(number, begin, begin + end * pace))
        begin += end * pace + 1
    return write(folder, lines)


_GPIPE = {"pipeline": 2, "virtual": 1, "expert": 1, "schedule": {"kind": "gpipe"}}


def _gpipe(microbatches: int, pace: tuple[float, float]) -> tuple[list[list[Row]], float]:
    """The rows of both ranks, and when the step ends."""
    rows: list[list[Row]] = [[], []]
    free = [0.0, 0.0]

    def run(stage: int, kind: str, batch: int, ready: float) -> float:
        begin = max(free[stage], ready)
        free[stage] = begin + (10 if kind == "F" else 20) * pace[stage]
        rows[stage].append(("compute", kind, stage, batch, begin, free[stage]))
        return free[stage]

    def send(stage: int, batch: int, begin: float) -> float:
        stream = ("send_forward", "activations") if stage == 0 else ("send_backward", "gradients")
        rows[stage].append((*stream, 1 - stage, batch, begin, begin + 2))
        return begin + 2

    arrived = [send(0, one, run(0, "F", one, 0)) for one in range(microbatches)]
    for one in range(microbatches):
        run(1, "F", one, arrived[one])
    back = [send(1, one, run(1, "B", one, 0)) for one in range(microbatches)]
    for one in range(microbatches):
        run(0, "B", one, back[one])
    agreed = max(free) + 2
    for stage in (0, 1):
        rows[stage].append(("data", "gradient_norm", -1, -1, free[stage], agreed))
        rows[stage].append(("compute", "optimizer", -1, -1, agreed, agreed + 5))
    return rows, agreed + 5
