"""Points: what is said of one, and how it is kept."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import twin
from twin.explore.sweep import points
from twin.explore.sweep.points import (
    PointOutcome,
    SweepPoint,
    answer_point,
    place,
    points_folder,
    recall,
    tidy,
)
from twin.loading import load, scenario_hash

MakePoint = Callable[..., SweepPoint]


def test_a_point_that_fits_has_the_figures_of_the_five_verbs(point: MakePoint):
    found = answer_point(point({"parallel.micro_batch": 2}))
    scenario = point({"parallel.micro_batch": 2}).scenario()
    plan = twin.plan(scenario)
    report = twin.report(plan, twin.simulate(twin.lower(plan)))
    assert found.status == "fits"
    assert found.answered
    assert found.step_ns == report.step_ns
    assert dict(found.kpis) == dict(report.kpis)
    assert found.hash == scenario_hash(scenario) == report.hash
    assert found.headroom_bytes == plan.memory.budget - plan.memory.peak.peak_bytes > 0
    assert found.peak_stage == plan.memory.peak.stage
    assert (found.reason, found.cached) == ("", False)


def test_a_point_that_is_too_large_says_where_and_by_how_much(point: MakePoint):
    overrides = {"parallel.tensor": 1, "parallel.sequence_parallel": False}
    found = answer_point(point(overrides))
    assert found.status == "does_not_fit"
    assert found.reason.startswith(f"stage {found.peak_stage} is ")
    assert found.reason.endswith(" GiB over")
    assert found.headroom_bytes is not None
    assert found.headroom_bytes < 0
    assert found.kpis["days"]


def test_host_memory_that_is_too_small_does_not_fit_either(point: MakePoint):
    found = answer_point(
        point({"memory.offload": ["optimizer"], "cluster.node.host.memory": "1GiB"})
    )
    assert (found.status, found.headroom_bytes is not None) == ("does_not_fit", True)
    assert "host memory of a node" in found.reason
    assert found.headroom_bytes is not None
    assert found.headroom_bytes > 0


def test_a_plan_that_does_not_fit_is_played_only_where_that_is_wanted(
    point: MakePoint, tmp_path: Path
):
    large = point({"parallel.tensor": 1, "parallel.sequence_parallel": False})
    planned = answer_point(large, tmp_path, play_unfit=False)
    assert (planned.status, dict(planned.kpis), planned.step_ns) == ("does_not_fit", {}, None)
    assert answer_point(large, tmp_path, play_unfit=False).cached
    played = answer_point(large, tmp_path)
    assert not played.cached
    assert played.kpis["days"]
    assert answer_point(large, tmp_path, play_unfit=False).kpis == played.kpis


def test_an_impossible_layout_is_an_outcome_with_its_problem(point: MakePoint, tmp_path: Path):
    found = answer_point(point({"parallel.pipeline": 3}), tmp_path)
    assert found.status == "impossible"
    assert found.code == "TW102"
    assert found.path == "parallel.pipeline"
    assert "does not divide 16 GPUs" in found.reason
    assert found.hash
    assert not found.answered
    assert answer_point(point({"parallel.pipeline": 3}), tmp_path).cached


def test_fields_that_contradict_each_other_are_an_outcome_too(point: MakePoint, tmp_path: Path):
    found = answer_point(point({"train.global_batch": "3000tok"}), tmp_path)
    assert (found.status, found.code, found.path) == ("impossible", "TW017", "train.global_batch")
    assert (found.hash, list(tmp_path.rglob("*.json"))) == ("", [])


def test_a_bug_costs_its_point_and_is_not_kept(
    point: MakePoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(points, "kpis", broken)
    found = answer_point(point(), tmp_path)
    assert (found.status, found.reason) == ("failed", "ZeroDivisionError: by zero")
    assert list(tmp_path.rglob("*.json")) == []


def test_a_worker_of_other_code_refuses(point: MakePoint):
    found = answer_point(point(), source="0123456789abcdef")
    assert found.status == "failed"
    assert "other code" in found.reason


def test_what_was_played_is_recalled_by_content_whatever_it_is_called(
    point: MakePoint, tmp_path: Path
):
    first = answer_point(point({"cluster.nodes": 4}), tmp_path)
    again = answer_point(point({"cluster.nodes": 4, "name": "other"}), tmp_path)
    assert not first.cached
    assert again.cached
    assert again.to_json() | {"cached": False} == first.to_json()
    (file,) = tmp_path.rglob("*.json")
    assert file == place(tmp_path, first.hash, "events")
    assert file.parent.name == first.hash[:2]
    assert recall(tmp_path, first.hash, "group") is None


def test_an_edit_of_the_code_never_serves_an_older_answer(
    point: MakePoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    answer_point(point(), tmp_path)
    monkeypatch.setattr(points, "source_digest", lambda: "0123456789abcdef")
    assert not answer_point(point(), tmp_path).cached
    assert answer_point(point(), tmp_path).cached
    monkeypatch.setattr(points, "version", lambda _: "9.9.9")
    assert not answer_point(point(), tmp_path).cached


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda text: text[: len(text) // 2],
        lambda text: b"\xff\xfe" + text,
        lambda _: b"[]",
        lambda text: text.replace(b'"version": 1', b'"version": 2'),
        lambda text: text.replace(b'"fits"', b'"fine"'),
        lambda text: json.dumps(json.loads(text) | {"outcome": {"status": "fits"}}).encode(),
    ],
    ids=["empty", "torn", "no text", "foreign", "newer", "unknown status", "another point"],
)
def test_a_damaged_file_is_as_if_absent_and_is_replaced(
    point: MakePoint, tmp_path: Path, damage: Callable[[bytes], bytes]
):
    first = answer_point(point(), tmp_path)
    file = place(tmp_path, first.hash, "events")
    text = file.read_bytes()
    file.write_bytes(damage(text))
    assert not answer_point(point(), tmp_path).cached
    assert answer_point(point(), tmp_path).cached


def test_a_folder_that_cannot_be_written_is_said_and_costs_nothing_else(
    point: MakePoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    assert answer_point(point(), in_the_way).status == "fits"
    assert answer_point(point(), in_the_way).status == "fits"
    assert caplog.text.count("Points are not stored") == 1


def test_what_a_killed_process_left_half_written_is_deleted_once_it_is_old(tmp_path: Path):
    old, new = (tmp_path / "ab" / name for name in (".old.tmp", ".new.tmp"))
    old.parent.mkdir()
    for file in (old, new):
        file.write_text("half")
    os.utime(old, (0, 0))
    tidy(tmp_path)
    assert (old.exists(), new.exists()) == (False, True)


def test_points_and_outcomes_travel_between_processes(point: MakePoint):
    sent = pickle.loads(pickle.dumps(point({"cluster.nodes": 4})))
    assert sent.scenario() == point({"cluster.nodes": 4}).scenario()
    found = answer_point(sent)
    assert pickle.loads(pickle.dumps(found)) == found
    said = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert said["kpis"] == found.kpis
    assert said["intervals"] == {key: one and [*one] for key, one in found.intervals.items()}


def test_outcomes_lie_beside_the_stored_runs_and_do_not_show_among_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: MakePoint
):
    monkeypatch.setenv("TWIN_RUNS", str(tmp_path))
    answer_point(point(), points_folder())
    assert points_folder() == tmp_path / "points"
    assert twin.answers.stored() == []
    assert isinstance(
        recall(points_folder(), scenario_hash(point().scenario()), "events"), PointOutcome
    )


def test_a_sweep_section_changes_neither_hash_nor_points(file: Path):
    before = scenario_hash(load(file))
    file.write_text(f"{file.read_text()}sweep: {{grid: {{parallel.pipeline: [1, 2]}}}}\n")
    assert scenario_hash(load(file)) == before
