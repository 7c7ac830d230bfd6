"""The section Profiler trace: what a visitor's traces say, beside the open plan's prediction."""

from __future__ import annotations

import gzip
import sys
import time
from pathlib import Path

import pytest

from tests.evidence.traces.traces import event, kernels, trace_file
from tests.ui.conftest import checked
from tests.ui.test_pages import words
from twin.evidence.traces.answer import TraceAnswer
from twin.ui import trace_reading
from twin.ui.trace_reading import traces

FULL = "gpt-175b-64xa100-full"
GEMM = "void cutlass::device_kernel<GemmKernel>"
REDUCE = {"Collective name": "allreduce", "Group size": 8,
          "Process Group Description": "TENSOR_GROUP"}  # fmt: skip
ROWS = [
    (GEMM, 7, 0, 900, 0),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 20, 900, 1000, 10, REDUCE),
]


@pytest.fixture
def trace(tmp_path: Path) -> bytes:
    """One rank's, with two steps of a millisecond."""
    steps = [
        event("user_annotation", f"ProfilerStep#{n}", 7, 2000 * n - 5, 2000 * n + 995)
        for n in (1, 2)
    ]
    rows = [
        (name, s, a + 2000 * n, b + 2000 * n, c + 2000 * n, *told)
        for n in (1, 2)
        for name, s, a, b, c, *told in ROWS
    ]
    return trace_file(tmp_path / "t.json", [*kernels(rows), *steps], rank=3).read_bytes()


def brought(opened, name, data):
    """The section after a file was brought and read."""
    app = opened(FULL, page="evidence", section="profiler-trace")
    assert "Write a trace" in [one.label for one in app.expander]
    app = checked(app.file_uploader[0].set_value((name, data, "application/json")).run())
    deadline = time.monotonic() + 120
    while "Reading `" in words(app):
        assert time.monotonic() < deadline
        time.sleep(0.2)
        app = checked(app.run())
    return app


def test_a_trace_is_told_beside_the_prediction_of_the_open_plan(opened, trace) -> None:
    app = brought(opened, "rank-3.json.gz", gzip.compress(trace))
    text = words(app)
    assert "Step 2 of rank 3 took 1 ms, 90.0 % of it compute." in text
    assert "They differ most in" in text
    assert f"twin measured rank-3.json.gz {FULL}" in text
    (causes,) = (one.value for one in app.table if "predicted" in one.value.columns)
    row = causes[causes["Cause"] == "Waiting for tensor-parallel collectives"]
    assert row["measured"].item() == "100 us (10.0 %)"
    assert [one.label for one in app.main.metric][:2] == ["Measured step", "Predicted step"]


def test_a_file_that_is_no_trace_is_refused_by_its_own_name(opened) -> None:
    app = brought(opened, "numbers.json", b'{"loss": [3, 2, 1]}')
    text = words(app)
    assert "This cannot be read as a profiler's trace." in text
    assert "TW350 `numbers.json` is no trace" in text


def test_a_trace_that_ends_early_counts_as_far_as_it_goes(opened, trace) -> None:
    app = brought(opened, "torn.json", trace[: 2 * len(trace) // 3])
    assert "`torn.json` ends early" in words(app)


def test_without_a_plan_that_can_run_a_trace_is_read_all_the_same(tmp_path, trace) -> None:
    (tmp_path / "one.json").write_bytes(trace)
    found = traces(str(tmp_path), ("one.json",), None, lambda _: None)
    assert isinstance(found, TraceAnswer)
    assert found.layers is None
    assert found.row["exposed_tensor"] == 100_000


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems tell no place")
def test_the_share_that_is_read_is_the_place_in_the_open_file(tmp_path) -> None:
    file = tmp_path / "half.json"
    file.write_bytes(bytes(1000))
    with file.open("rb", buffering=0) as raw:
        raw.read(500)
        assert dict(trace_reading._places())[file.resolve()] == 500


def test_more_files_than_are_read_are_told(opened, trace, monkeypatch) -> None:
    monkeypatch.setattr("twin.ui.profiler_trace._FILES", 1)
    app = opened(FULL, page="evidence", section="profiler-trace")
    two = [(f"{at}.json", trace, "application/json") for at in (0, 1)]
    app = checked(app.file_uploader[0].set_value(two).run())
    assert "The first 1 files are read; 1 more are left out." in words(app)
