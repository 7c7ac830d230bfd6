"""The Perfetto timeline, read back: what it says is what the trace and the ledger say."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from twin.answers import Run
from twin.engine.program import STREAMS
from twin.interop.export.base import write


def read(run: Run, out: Path) -> dict[str, Any]:
    """The file, with times as exact fractions of a microsecond."""
    (path,) = write(run, "perfetto", out / "step.json.gz")
    return json.loads(gzip.decompress(path.read_bytes()), parse_float=Fraction, parse_int=Fraction)


def slices(events: list[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Slices by the names of their process and track, in time order."""
    names = {
        (one["name"], one["pid"], one["tid"]): one["args"].get("name")
        for one in events
        if one["ph"] == "M"
    }
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for one in events:
        if one["ph"] == "X":
            process = names["process_name", one["pid"], 0]
            found[process, names["thread_name", one["pid"], one["tid"]]].append(one)
    return {track: sorted(own, key=lambda one: one["ts"]) for track, own in found.items()}


def test_slices_of_a_track_never_overlap(small: Run, out: Path) -> None:
    tracks = slices(read(small, out)["traceEvents"])
    assert {process for process, _ in tracks} == {"critical path", *small.trace.roles}
    for own in tracks.values():
        assert all(before["ts"] + before["dur"] <= after["ts"] for before, after in pairwise(own))


def test_tracks_have_numbers_of_their_own(small: Run, out: Path) -> None:
    """Readers take the number of a thread for unique, and zero for the idle one."""
    events = [one for one in read(small, out)["traceEvents"] if one["ph"] == "X"]
    processes = {one["tid"]: one["pid"] for one in events}
    assert all(processes[one["tid"]] == one["pid"] for one in events)
    assert min(processes) > 0


def test_slices_of_the_compute_tracks_sum_to_the_time_that_the_breakdown_calls_busy(
    small: Run, out: Path
) -> None:
    tracks = slices(read(small, out)["traceEvents"])
    for role, row in zip(small.trace.roles, small.trace.breakdown_ns, strict=True):
        busy = sum(one["dur"] for one in tracks[role, "compute"]) * 1000
        assert busy == row["compute"] + row["contention"] + row["optimizer"]


def test_every_span_is_a_slice_with_its_name_and_its_pass(small: Run, out: Path) -> None:
    spans, trace = small.trace.spans, small.trace
    tracks = slices(read(small, out)["traceEvents"])
    told = sorted(
        (role, stream, one["ts"] * 1000, one["dur"] * 1000, one["name"], _pass(one))
        for (role, stream), own in tracks.items()
        if role != "critical path"
        for one in own
    )
    played = sorted(
        (
            trace.roles[spans.role[row]],
            STREAMS[spans.stream[row]],
            int(spans.start[row]),
            int(spans.end[row] - spans.start[row]),
            trace.names[spans.name[row]],
            (int(spans.chunk[row]), int(spans.microbatch[row])),
        )
        for row in range(len(spans.start))
    )
    assert told == played


def _pass(event: dict[str, Any]) -> tuple[int, int]:
    known = event.get("args", {})
    return known.get("chunk", -1), known.get("microbatch", -1)


def test_the_critical_path_is_marked_and_has_a_track_that_spans_the_step(
    small: Run, out: Path
) -> None:
    tracks = slices(read(small, out)["traceEvents"])
    path = tracks.pop(("critical path", "critical path"))
    marked = [one for own in tracks.values() for one in own if "critical" in one["cat"].split(",")]
    assert len(marked) == len(path) == len(small.trace.critical) > 0
    assert sorted(one["ts"] for one in marked) == [one["ts"] for one in path]
    assert path[0]["ts"] == 0
    assert (path[-1]["ts"] + path[-1]["dur"]) * 1000 == small.trace.step_ns
    assert path[0]["name"].startswith("stage ")


def test_the_memory_counter_peaks_where_the_ledger_does(small: Run, out: Path) -> None:
    events = read(small, out)["traceEvents"]
    process = {one["args"].get("name"): one["pid"] for one in events if one["ph"] == "M"}
    for stage in small.report.memory.stages:
        series = [
            one["args"]["bytes"]
            for one in events
            if one["ph"] == "C"
            and one["name"] == "device memory (bytes)"
            and one["pid"] == process[f"stage {stage.stage}"]
        ]
        assert float(max(series)) == pytest.approx(stage.peak_bytes, abs=1)


def test_a_window_that_repeats_is_told(repeating: Run, out: Path) -> None:
    said = read(repeating, out)["otherData"]
    assert (said["repeats"], said["window_start_ns"], said["window_end_ns"]) == (
        "3",
        "1000000",
        "2000000",
    )
    assert "3 times in a row" in said["note"]
    assert "2000000 ns later" in said["note"]


def test_a_window_holds_what_its_ranks_do_in_it_and_nothing_else(small: Run, out: Path) -> None:
    spans, end = small.trace.spans, small.trace.step_ns
    window = end // 3, end // 2
    part = replace(small, trace=small.trace.within(window, [1]))
    found = slices(read(part, out)["traceEvents"])
    inside = (spans.start < window[1]) & (spans.end > window[0]) & (spans.role == 1)
    tracks = {track: own for track, own in found.items() if track[0] != "critical path"}
    assert {process for process, _ in tracks} == {small.trace.roles[1]}
    assert sum(map(len, tracks.values())) == inside.sum() > 0
    marked = [one for own in tracks.values() for one in own if "critical" in one["cat"].split(",")]
    assert len(marked) == len(found.get(("critical path", "critical path"), []))
    assert part.trace.breakdown_ns == small.trace.breakdown_ns
    assert "from" in read(part, out)["otherData"]["note"]
