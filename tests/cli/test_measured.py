"""`twin measured`, and what other verbs do with a real run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL
from tests.command import Command
from tests.evidence.measured.timelines import pipeline
from tests.evidence.traces.traces import event, kernels, trace_file


@pytest.fixture
def run(tmp_path: Path) -> str:
    """The folder of a run of two stages where commands run."""
    pipeline(tmp_path / "runs" / "train" / "piped")
    return "runs/train/piped"


@pytest.fixture
def small(tmp_path: Path) -> str:
    (tmp_path / "small.yaml").write_text(SMALL)
    return "small.yaml"


def test_a_run_is_told_in_a_sentence_and_in_tables(twin_command: Command, run: str) -> None:
    found = twin_command("measured", run)
    assert found.code == 0
    assert found.out.startswith("Step 3 took 161 ms")
    for words in ("pipeline bubble", "F ", "rank 1, stage 1", "kimi-k2-nano", "1 of 5 steps"):
        assert words in found.out


def test_the_document_holds_what_the_tables_say(twin_command: Command, run: str) -> None:
    document = json.loads(twin_command("measured", run, "--json").out)
    assert document["version"] == 1
    assert document["predicted"] is None
    assert document["steps"]["chosen"] == 3
    assert document["run"]["ranks"] == 2
    for row in (document["breakdown_ns"], *(one["breakdown_ns"] for one in document["ranks"])):
        assert sum(row.values()) == round(document["step_seconds"] * 1e9)


def test_a_prediction_stands_beside_and_says_where_it_is_of_something_else(
    twin_command: Command, run: str, small: str
) -> None:
    found = twin_command("measured", run, small, "--json")
    predicted = json.loads(found.out)["predicted"]
    assert predicted["step_error"] > 1
    assert {one["name"] for one in predicted["actions"]} >= {"F", "B", "optimizer", "message"}
    assert "Not the same run: model: kimi-k2-nano in the run, gpt-22b in the plan" in found.err
    assert "too long" in twin_command("measured", run, small, "-q").out


def test_without_a_run_those_that_are_there_are_listed(
    twin_command: Command, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWIN_RUNS", "runs")
    assert run in twin_command("measured").out
    (one,) = json.loads(twin_command("measured", "--json").out)["runs"]
    assert one == {"name": "piped", "path": run}


def test_where_there_is_none_that_is_said(twin_command: Command) -> None:
    assert "No run with a timeline" in twin_command("measured").out
    found = twin_command("measured", "nowhere")
    assert found.code == 2
    assert "TW330" in found.err
    assert "Traceback" not in found.err


def test_edits_need_a_scenario(twin_command: Command, run: str) -> None:
    assert twin_command("measured", run, "--set", "a.b=1").code == 2


def test_a_real_run_becomes_a_perfetto_timeline_by_rank_and_stream(
    twin_command: Command, run: str, tmp_path: Path
) -> None:
    found = twin_command("export", run, "--format", "perfetto", "-o", "run.json.gz")
    assert found.code == 0, found.err
    document = json.loads(gzip.decompress((tmp_path / "run.json.gz").read_bytes()))
    events = document["traceEvents"]
    names = {one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert names == {"rank 0, stage 0", "rank 1, stage 1"}
    threads = {one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert threads == {"compute", "send_forward", "send_backward", "data"}
    slices = [one for one in events if one["ph"] == "X"]
    assert len(slices) == 28
    assert {one["name"] for one in slices} >= {"forward", "backward", "optimizer"}
    assert document["otherData"]["step"] == "3"


def test_its_prediction_goes_into_the_same_timeline(
    twin_command: Command, run: str, small: str, tmp_path: Path
) -> None:
    words = ("--format", "perfetto", "--beside", small, "--step", "2", "-o", "both.json")
    assert twin_command("export", run, *words).code == 0
    events = json.loads((tmp_path / "both.json").read_text())["traceEvents"]
    names = [one["args"]["name"] for one in events if one["name"] == "process_name"]
    assert names[:2] == ["rank 0, stage 0, measured", "stage 0, predicted"]


def test_formats_of_key_figures_refuse_a_real_run(twin_command: Command, run: str) -> None:
    found = twin_command("export", run, "--format", "csv", "-o", "run.csv")
    assert found.code == 2
    assert "TW337" in found.err


def test_only_a_real_run_has_steps(twin_command: Command, small: str) -> None:
    words = ("--format", "perfetto", "-o", "small.json", "--step", "1")
    assert twin_command("export", small, *words).code == 2


def test_the_app_is_opened_with_a_run_that_is_checked_first(
    twin_command: Command, run: str, small: str, tmp_path: Path
) -> None:
    words = json.loads(twin_command("ui", small, "--measured", run, "--json").out)["command"]
    assert words[-3:] == ["--", str(tmp_path / small), str(tmp_path / run)]
    assert twin_command("ui", "--measured", "nowhere", "--json").code == 2


def test_traces_of_another_trainer_are_told_beside_the_plan_of_their_layers(
    twin_command: Command, tmp_path: Path, small: str
) -> None:
    attention = "void flash::compute_attn_ws<Flash_fwd_kernel_traits<192, 128>>"
    rows = [
        ("sm90_gemm", 7, 0, 900, 0),
        (attention, 7, 1000, 2000, 5),
        (attention, 7, 2000, 3000, 6),
    ]
    events = kernels(rows)
    events.append(event("cpu_op", "autograd::engine::evaluate_function: x", 7, 3.5, 6.5))
    traces = [str(trace_file(tmp_path / f"{at}.json", events, rank=at)) for at in (1, 0)]
    found = twin_command("measured", *traces, small)
    assert found.code == 0, found.err
    assert found.out.startswith(
        "The trace of rank 0 took 3 ms, 96.7 % of it compute, in 1 forward and 1 backward layers."
    )
    for words in ("The plan says", "attention", "other", "products"):
        assert words in found.out
    document = json.loads(twin_command("measured", *traces, small, "--json").out)
    assert document["format"] == "trace"
    assert [one["rank"] for one in document["ranks"]] == [0, 1]
    for one in document["ranks"]:
        assert sum(one["breakdown"].values()) == pytest.approx(one["step_seconds"])
    assert document["predicted"]["layers"] == 1
    wrong = twin_command("measured", *traces, small, "another.yaml")
    assert wrong.code == 2
    assert "one scenario" in wrong.err
