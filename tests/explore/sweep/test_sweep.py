"""`twin sweep`: the document, the table, files and exit codes."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

import twin
from tests.explore.sweep.conftest import SMALL
from twin.answers.answer import ask
from twin.cli.main import main
from twin.loading import load

GRID = (
    "--grid",
    "parallel.pipeline=1,2,3",
    "--grid",
    "memory.recompute=[full],[]",
    "--grid",
    "parallel.tensor=4,8",
)


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.out)


Sweep = Callable[..., Said]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where answers are kept: most tests ask for the same points."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def sweep(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Sweep:
    """Runs `twin sweep small.yaml WORDS` in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TWIN_RUNS", str(runs))
    (tmp_path / "small.yaml").write_text(SMALL)

    def run(*words: str) -> Said:
        code = main(["sweep", "small.yaml", "--jobs", "1", *words])
        seen = capsys.readouterr()
        return Said(code, seen.out, seen.err)

    return run


@pytest.fixture
def empty(sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """The same, where nothing is kept yet."""
    monkeypatch.setenv("TWIN_RUNS", str(tmp_path / "runs"))
    return sweep


def test_the_document_holds_every_combination_with_its_answer(empty: Sweep):
    said = empty(*GRID, "--json")
    assert said.code == 0
    assert said.err == ""
    document = said.document
    assert document["version"] == 1
    assert document["axes"]["memory.recompute"] == [["full"], []]
    assert (document["examined"], document["cached"], document["failed"]) == (12, 0, 0)
    points = document["points"]
    assert len(points) == 12
    answered = [one for one in points if one["status"] in ("fits", "does_not_fit")]
    assert document["evaluated"] == len(answered)
    for one in points:
        assert one.keys() == points[0].keys()
        impossible = one["overrides"]["parallel.pipeline"] == 3
        assert (one["status"] == "impossible") == impossible
        assert bool(one["code"]) == impossible
        assert bool(one["kpis"]) == (not impossible)
        assert bool(one["reason"]) == (one["status"] != "fits")


def test_a_point_by_events_has_the_interval_of_its_run_also_where_nobody_named_the_software(
    sweep: Sweep, tmp_path: Path
):
    asked = ("--grid", "cluster.nodes=2", "--fidelity", "events", "--json")
    named = sweep(*asked).document["points"][0]
    text = (tmp_path / "small.yaml").read_text()
    (tmp_path / "small.yaml").write_text(text.replace("software: null\n", ""))
    unnamed = sweep(*asked).document["points"][0]
    for point, sets in ((named, ["software=null"]), (unnamed, [])):
        plan = twin.plan(load("small.yaml", ["cluster.nodes=2", *sets]))
        report = twin.report(plan, twin.simulate(twin.lower(plan)))
        told = {key: None if one is None else list(one) for key, one in report.intervals.items()}
        assert point["intervals"] == told


def test_each_point_says_what_a_run_of_the_same_overrides_says(sweep: Sweep):
    for point in sweep(*GRID, "--json", "--fidelity", "events").document["points"]:
        if point["status"] == "impossible":
            continue
        sets = [f"{path}={json.dumps(value)}" for path, value in point["overrides"].items()]
        plan = twin.plan(load("small.yaml", sets))
        report = twin.report(plan, twin.simulate(twin.lower(plan)))
        assert point["kpis"] == dict(report.kpis)
        assert (point["status"] == "fits", point["hash"]) == (report.fits, report.hash)


def test_the_frontier_is_of_points_that_fit_by_days_and_cost(sweep: Sweep):
    document = sweep(
        "--grid", "cluster.nodes=2,4,8", "--grid", "memory.recompute=[full],[]", "--json"
    ).document
    assert document["frontier_by"] == ["days", "cost_usd"]
    points, best = document["points"], document["frontier"]
    fitting = [n for n, one in enumerate(points) if one["status"] == "fits"]

    def pair(n: int) -> tuple[float, float]:
        return points[n]["kpis"]["days"], points[n]["kpis"]["cost_usd"]

    assert best
    assert set(best) == {
        n
        for n in fitting
        if not any(
            pair(m) != pair(n) and pair(m)[0] <= pair(n)[0] and pair(m)[1] <= pair(n)[1]
            for m in fitting
        )
    }
    unpriced = sweep("--set", "cost=null", "--grid", "cluster.nodes=2,4", "--json").document
    assert unpriced["frontier_by"] == ["days", "gpu_hours"]
    assert unpriced["frontier"]


def test_a_sweep_that_is_asked_again_plays_nothing(empty: Sweep):
    first, again = (empty(*GRID, "--json").document for _ in range(2))
    assert (again["evaluated"], again["cached"]) == (0, 12)
    assert {**again, "evaluated": 0, "cached": 0} == {**first, "evaluated": 0, "cached": 0}
    # Another sweep that meets the same scenarios shares them; --no-cache shares nothing.
    assert empty("--grid", "parallel.pipeline=1,2", "--json").document["cached"] == 2
    alone = empty(*GRID, "--json", "--no-cache").document
    assert alone["cached"] == 0


def test_equal_scenarios_are_played_once(empty: Sweep):
    document = empty("--grid", "train.global_batch=16seq,32768tok,16seq", "--json").document
    assert (document["examined"], document["evaluated"], document["cached"]) == (3, 1, 2)
    assert len({point["hash"] for point in document["points"]}) == 1


def test_the_table_says_fit_figures_and_why_not_and_marks_the_frontier(sweep: Sweep):
    said = sweep(*GRID, "--show", "bubble_fraction")
    first, *others = said.out.splitlines()
    assert first.startswith("12 points: ")
    assert "4 are impossible" in first
    rows = [line for line in others if re.search(r" (impossible|fits|out of memory) ", line)]
    assert len(rows) == 12
    why = dict(line.strip().split(": ", 1) for line in others[others.index("Why not") + 1 :])
    reasons = {row: why.get(row.split()[-1], "") for row in rows}
    assert all("TW102" in reasons[row] for row in rows if " impossible " in row)
    assert all(" over" in reasons[row] for row in rows if "out of memory" in row)
    assert [row.startswith("*") for row in rows].count(True) == len(
        sweep(*GRID, "--json").document["frontier"]
    )
    heading = next(line for line in others if "pipeline" in line and "step" in line)
    for word in ("pipeline", "recompute", "tensor", "step", "run", "cost", "MFU", "bubble"):
        assert word in heading
    assert any(line.startswith("Quickest") for line in others)


def test_of_many_points_the_table_shows_the_best_and_counts_the_rest(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("twin.cli.sweep._MOST_ROWS", 4)
    said = sweep("--grid", "train.global_batch=16seq..96seq:16seq")
    rows = [line for line in said.out.splitlines() if " fits " in line]
    assert len(rows) == 4
    assert "2 more points" in " ".join(said.out.split())


def test_a_quiet_sweep_says_sentences_only(sweep: Sweep):
    said = sweep("--grid", "cluster.nodes=2,4", "-q")
    assert said.out.startswith("2 points: 2 fit.\nQuickest: --set cluster.nodes=4: ")
    assert len(said.out.splitlines()) == 3
    assert said.err == ""


def test_files_hold_every_point(sweep: Sweep, tmp_path: Path):
    document = sweep(*GRID, "--json", "-o", "all.json").document
    assert json.loads((tmp_path / "all.json").read_text()) == document
    sweep(*GRID, "-q", "-o", "all.csv")
    sweep(*GRID, "-q", "-o", "all.parquet")
    rows = list(csv.DictReader((tmp_path / "all.csv").read_text().splitlines()))
    table = pq.read_table(tmp_path / "all.parquet").to_pylist()
    assert len(rows) == len(table) == 12
    for n, (row, cells, point) in enumerate(zip(rows, table, document["points"], strict=True)):
        assert row["status"] == cells["status"] == point["status"]
        assert row["frontier"] == str(n in document["frontier"])
        assert cells["frontier"] == (n in document["frontier"])
        assert cells["parallel.pipeline"] == point["overrides"]["parallel.pipeline"]
        assert row["memory.recompute"] == cells["memory.recompute"] in ("[full]", "[]")
        days = point["kpis"].get("days")
        assert cells["days"] == days
        assert row["days"] == ("" if days is None else repr(days))
        assert cells["step_ns"] == point["step_ns"]
        assert (cells["reason"] or "") == row["reason"] == point["reason"]


def test_a_section_is_swept_and_the_command_adds_to_it(sweep: Sweep, tmp_path: Path):
    section = (
        "sweep: {grid: {cluster.nodes: [2, 4]}, points: [{parallel.pipeline: 1}], show: [hfu]}"
    )
    (tmp_path / "small.yaml").write_text(f"{SMALL}{section}\n")
    overrides = [point["overrides"] for point in sweep("--json").document["points"]]
    assert overrides == [{"cluster.nodes": 2}, {"cluster.nodes": 4}, {"parallel.pipeline": 1}]
    assert "(HFU)" in sweep().out
    added = sweep("--json", "--grid", "parallel.micro_batch=1,2").document
    assert added["examined"] == 5
    assert added["axes"].keys() == {"cluster.nodes", "parallel.micro_batch"}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--grid", "parallel.pipeline=1,3"), 0),
        (("--grid", "parallel.pipeline=3,5"), 3),
        (("--grid", "parallel.pipeline=1,3", "--set", "cluster.node.gpu.memory=8GiB"), 4),
        (("--grid", "parallel.pipelin=1"), 2),
        ((), 2),
        (("--grid", "cluster.nodes=1..99", "--limit", "98"), 2),
        (("--grid", "cluster.nodes=2", "-o", "all.xlsx"), 2),
        (("--grid", "cluster.nodes=2", "-o", "no/all.csv"), 2),
        (("--grid", "cluster.nodes=2", "--show", "mfuu"), 2),
        (("--grid", "cluster.nodes=2", "--cluster", "here"), 2),
        (("--grid", "cluster.nodes=2", "--set", "train.tokens=many"), 3),
    ],
)
@pytest.mark.usefixtures("sweep")
def test_the_exit_code_says_how_it_ended(words: tuple[str, ...], code: int):
    jobs = [] if "--cluster" in words else ["--jobs", "1"]
    assert main(["sweep", "small.yaml", *jobs, *words]) == code


def test_the_limit_says_the_size_and_how_to_raise_it(sweep: Sweep):
    said = sweep("--grid", "cluster.nodes=1..10", "--grid", "parallel.tensor=1,2", "--limit", "19")
    assert said.code == 2
    assert "20 points (10 x 2) are more than the limit of 19" in said.err
    assert "--limit 20" in said.err
    assert sweep("--grid", "cluster.nodes=2", "--limit", "1", "--json").code == 0


def test_figures_with_failures_are_those_of_a_run(sweep: Sweep, tmp_path: Path):
    section = """\
goodput:
  failures: llama3-h100
  restart: megascale
  checkpoint: {every: auto, save: synchronous, storage: {per_node: 1GB/s, total: 8GB/s}}
  seeds: 10
"""
    (tmp_path / "small.yaml").write_text(SMALL + section)
    (point,) = sweep("--grid", "cluster.nodes=2", "--json").document["points"]
    assert point["kpis"] == ask(load("small.yaml", ["cluster.nodes=2"]), cache=False).report.kpis
    assert 0 < point["kpis"]["goodput_fraction"] < 1
