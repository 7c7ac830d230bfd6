"""Runs as a trainer would have written them: logs with known step times, and timelines with known
kernels, transfers and stalls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twin.evidence.live.trainer_log import LoggedStep

MS = 1_000_000
BEGIN = 1_800_000_000_000_000_000
"""ns: 2027-01-15."""


def noise(count: int, *, sigma: float, phi: float = 0.0, seed: int = 0) -> NDArray[np.float64]:
    """Factors whose logarithms are normal with this deviation and lag-1 autocorrelation."""
    rng = np.random.default_rng(seed)
    shocks = rng.normal(scale=sigma, size=count)
    found = np.empty(count)
    found[0] = shocks[0]
    for at in range(1, count):
        found[at] = phi * found[at - 1] + np.sqrt(1 - phi * phi) * shocks[at]
    return np.exp(found)


def steps(seconds: Sequence[float] | NDArray[np.float64]) -> list[LoggedStep]:
    """Steps of one process, as a log would hold them."""
    return [LoggedStep(n + 1, float(one), None, "", n) for n, one in enumerate(seconds)]


def line(step: int, seconds: float, tokens: int = 100, stage: str = "train") -> dict[str, Any]:
    """A step's line; each has so many tokens."""
    facts = {"kind": "step", "step": step, "stage": stage, "tokens": step * tokens}
    return facts | {"seconds": float(seconds)}


def write_log(
    folder: Path, seconds: Sequence[float] | NDArray[np.float64], *, tokens: int = 100
) -> Path:
    """A whole log in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "metrics.jsonl"
    rows = [line(n, one, tokens) for n, one in enumerate(seconds, 1)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def write_config(folder: Path, count: int) -> None:
    """What the trainer says of a run of so many steps of 100 tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    train = {"steps": count, "sequence": 10, "micro_batch": 5, "accumulate": 2}
    (folder / "run.json").write_text(json.dumps({"train": train, "stages": []}))


def write_timeline(
    folder: Path,
    count: int,
    *,
    kernels: Sequence[Sequence[int]],
    message: Sequence[int],
    stall: Sequence[int],
    pause: int = 0,
    start: int = BEGIN,
) -> None:
    """Two stages, one micro-batch: per step the ms of each stage's forward, of the message between
    them, and of what the first stage waits for before it begins. Backward as long as forward."""
    (folder / "timeline").mkdir(parents=True, exist_ok=True)
    rows: list[list[dict[str, Any]]] = [[_header(0)], [_header(1)]]
    at = start
    for step in range(1, count + 1):
        first, second = kernels[0][step - 1] * MS, kernels[1][step - 1] * MS
        wire, wait = message[step - 1] * MS, stall[step - 1] * MS
        marks = np.cumsum([at, wait, first, wire, second, second, wire, first]).tolist()
        _, f0, m0, f1, b1, m1, b0, end = marks
        rows[0] += [_span(step, "compute", "F", 0, f0, m0), _send(step, True, m0, f1)]
        rows[1] += [_span(step, "compute", "F", 1, f1, b1), _span(step, "compute", "B", 1, b1, m1)]
        rows[1] += [_send(step, False, m1, b0)]
        rows[0] += [_span(step, "compute", "B", 0, b0, end)]
        for own in rows:
            own.append({"kind": "step", "step": step, "start": at, "end": end})
        at = end + pause * MS
    for rank, own in enumerate(rows):
        text = "".join(f"{json.dumps(one)}\n" for one in own)
        (folder / "timeline" / f"rank-{rank:05d}.jsonl").write_text(text)


def _header(rank: int) -> dict[str, Any]:
    known = {"kind": "header", "version": 1, "rank": rank, "ranks": 2, "stage": rank}
    told = {"clock": "unix_ns", "parallel": {"pipeline": 2}, "model": "made", "microbatches": 1}
    return known | told | {"created": "2027-01-15T08:00:00+00:00"}


def _span(step: int, stream: str, name: str, chunk: int, start: int, end: int) -> dict[str, Any]:
    facts = {"kind": "span", "step": step, "stream": stream, "name": name, "chunk": chunk}
    return facts | {"microbatch": 0, "start": start, "end": end, "bytes": 0}


def _send(step: int, forward: bool, start: int, end: int) -> dict[str, Any]:
    stream = "send_forward" if forward else "send_backward"
    name = "activations" if forward else "gradients"
    return _span(step, stream, name, int(forward), start, end) | {"bytes": 1000}
