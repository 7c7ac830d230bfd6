"""A stored answer is the answer, or it is none."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import twin
from tests.cli.conftest import SMALL
from twin.answers import Run, ask, parquet, recall, run_store, stored
from twin.answers.run_store import key
from twin.engine import lower, plan, simulate
from twin.kinds.base import Fidelity, told_apart
from twin.loading import load, scenario_hash
from twin.scenario import Scenario


def assert_same(left: Any, right: Any) -> None:
    """Equal in every field, arrays in every value and type."""
    assert type(left) is type(right)
    if isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    elif hasattr(left, "__dataclass_fields__"):
        for one in fields(left):
            assert_same(getattr(left, one.name), getattr(right, one.name))
    else:
        assert left == right


@pytest.mark.parametrize("name", ["small", "kimi-k2-2048xh800"])
def test_a_loaded_answer_equals_the_fresh_one_in_every_field(name: str, small: Scenario) -> None:
    scenario = small if name == "small" else load(name)
    fresh = ask(scenario, command="twin run it")
    loaded = ask(scenario, command="twin run it")
    assert (fresh.cached, loaded.cached) == (False, True)
    assert_same(replace(fresh, cached=True), loaded)
    assert len(loaded.trace.spans.start) > 0


@pytest.mark.benchmark
def test_loading_the_flagship_takes_under_300_ms_of_cpu() -> None:
    scenario = load("kimi-k2-2048xh800")
    ask(scenario)
    times: list[float] = []
    for _ in range(3):
        begin = time.process_time()
        assert ask(scenario).cached
        times.append(time.process_time() - begin)
    print(f"a stored flagship run: {min(times):.3f} s of CPU")
    assert min(times) < 0.3


def test_a_stored_answer_says_when_and_how_long_it_was_played(small: Scenario) -> None:
    begin = datetime.now(UTC) - timedelta(seconds=1)
    fresh = ask(small).report.provenance
    time.sleep(1.1)
    again = ask(small).report.provenance
    assert begin <= datetime.fromisoformat(fresh.created) <= datetime.now(UTC)
    assert (again.created, again.wall_seconds) == (fresh.created, fresh.wall_seconds)
    assert stored()[0].created == fresh.created


def test_the_answer_is_kept_under_its_hash(small: Scenario, runs: Path) -> None:
    found = ask(small)
    assert found.stored
    assert found.stored == runs / scenario_hash(small)
    assert {file.name for file in found.stored.iterdir()} == {
        "scenario.yaml",
        "report.json",
        "run.json",
        "ledger.json",
        "trace.parquet",
        "trace.json",
    }
    assert [path.name for path in runs.iterdir()] == [found.report.hash]


def test_the_stored_scenario_is_the_scenario_with_its_sources(small: Scenario, runs: Path) -> None:
    ask(small)
    assert load(runs / scenario_hash(small) / "scenario.yaml") == small
    again = recall(stored()[0])
    assert again == small
    assert again.ledger == small.ledger
    assert small.ledger


def test_without_the_cache_nothing_is_read_or_written(small: Scenario, runs: Path) -> None:
    assert ask(small, cache=False).stored is None
    assert not runs.exists()
    ask(small)
    assert not ask(small, cache=False).cached


def test_the_same_plan_under_another_name_keeps_its_own_name(
    small: Scenario, tmp_path: Path
) -> None:
    (tmp_path / "twin.yaml").write_text("\n\n" + SMALL.replace("name: small", "name: other"))
    other = load(tmp_path / "twin.yaml")
    first, second = ask(small, command="first"), ask(other, command="second")
    assert second.cached
    assert (first.report.name, second.report.name) == ("small", "other")
    assert second.report.scenario["name"] == "other"
    assert second.plan.scenario.origin("name").file.endswith("twin.yaml")
    assert second.report.provenance.reproduce == "second"


def test_an_edit_of_the_scenario_is_another_answer(small: Scenario, tmp_path: Path) -> None:
    ask(small)
    other = load(tmp_path / "small.yaml", ["train.global_batch=16seq"])
    assert not ask(other).cached
    assert len(stored()) == 2


@pytest.mark.parametrize(("fidelity", "ending"), [("events", ""), ("group", "-group")])
def test_every_fidelity_has_an_answer_of_its_own(
    fidelity: Fidelity, ending: str, small: Scenario, runs: Path
) -> None:
    program = lower(plan(small), told_apart(fidelity))
    assert_same(ask(small, fidelity=fidelity).trace, simulate(program))
    again = ask(small, fidelity=fidelity)
    assert (again.cached, again.report.provenance.fidelity) == (True, fidelity)
    assert [path.name for path in runs.iterdir()] == [scenario_hash(small) + ending]


@pytest.mark.parametrize("part", ["source", "twin_version"])
def test_an_answer_of_other_code_is_not_served_but_replaced(
    part: str, small: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = key(small, "events")
    with monkeypatch.context() as yesterday:
        yesterday.setattr(
            "twin.answers.answer.key", lambda *_: replace(now, **{part: "of yesterday"})
        )
        ask(small)
    assert stored()[0].current == (part != "source")
    assert not ask(small).cached
    assert ask(small).cached
    assert len(stored()) == 1
    assert stored()[0].current


def test_the_digest_of_the_source_sees_every_edit(tmp_path: Path) -> None:
    """In a copy of the package, one more line in one module is another digest."""
    copy = tmp_path / "copy"
    shutil.copytree(Path(twin.__file__ or "").parent, copy / "twin")

    def digest() -> str:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from twin.answers.run_store import source_digest as d; print(d())",
            ],
            capture_output=True,
            text=True,
            check=True,
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy)},
        )
        return done.stdout.strip()

    before = digest()
    with (copy / "twin" / "engine" / "clock.py").open("a") as module:
        module.write("\n")
    assert digest() != before


def _truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "harm", [_truncate, _flip, Path.unlink, lambda file: file.write_bytes(b"")]
)
@pytest.mark.parametrize("name", ["trace.parquet", "trace.json", "run.json"])
def test_a_damaged_entry_is_no_answer_and_is_replaced(
    name: str, harm: Callable[[Path], None], small: Scenario, runs: Path
) -> None:
    fresh = ask(small)
    harm(runs / scenario_hash(small) / name)
    again = ask(small)
    assert again.report.kpis == fresh.report.kpis
    assert not again.cached
    assert ask(small).cached


def test_a_file_where_the_entry_should_be_is_replaced(small: Scenario, runs: Path) -> None:
    runs.mkdir()
    (runs / scenario_hash(small)).write_text("not a folder")
    assert ask(small).stored
    assert ask(small).cached


def test_leftovers_of_killed_processes_are_swept_once_they_are_old(
    small: Scenario, runs: Path
) -> None:
    for name, age in ((".old.tmp", 7200), (".new.tmp", 10)):
        (runs / name).mkdir(parents=True)
        then = time.time() - age
        os.utime(runs / name, (then, then))
    ask(small)
    assert {path.name for path in runs.iterdir()} == {".new.tmp", scenario_hash(small)}
    assert len(stored()) == 1


def _run_often(path: str, times: int) -> list[tuple[bool, int]]:
    """Answers of one process, each under a name of its own."""
    os.environ["TWIN_RUNS"] = path
    scenario = load(Path(path).parent / "small.yaml")
    found: list[tuple[bool, int]] = []
    for _ in range(times):
        one: Run = ask(scenario)
        found.append((one.stored is not None, one.trace.step_ns))
        if one.stored:
            run_store.discard(one.stored / "run.json")
    return found


@pytest.mark.slow
def test_processes_that_store_and_damage_the_same_run_at_once_all_get_the_answer(
    small: Scenario, runs: Path
) -> None:
    expected = ask(small, cache=False).trace.step_ns
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        answers = pool.starmap(_run_often, [(str(runs), 5)] * 2)
    assert {pair for one in answers for pair in one} == {(True, expected)}
    assert ask(small).stored
    assert ask(small).cached
    assert [path.name for path in runs.iterdir()] == [scenario_hash(small)]


@pytest.mark.parametrize("kind", ["folder that is a file", "full disk", "read-only disk"])
def test_where_nothing_can_be_stored_the_answer_is_given_and_one_message(
    kind: str,
    small: Scenario,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if kind == "folder that is a file":
        runs.write_text("")
    else:
        number = 28 if kind == "full disk" else 30  # ENOSPC, EROFS

        def refuse(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(Path, "write_bytes" if kind == "full disk" else "mkdir", refuse)
    with caplog.at_level(logging.WARNING):
        answers = [ask(small), ask(small)]
    assert [(one.stored, one.cached) for one in answers] == [(None, False)] * 2
    assert answers[0].report.fits
    assert len(caplog.records) == 1
    assert "not stored" in caplog.text
    if kind == "full disk":
        assert list(runs.iterdir()) == []


def test_a_window_of_a_stored_trace_is_read_without_the_rest(
    small: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROWS", 64)
    whole = ask(small, fidelity="all").trace
    wanted, roles = key(small, "all"), range(3, 5)
    begin, end = whole.step_ns // 4, whole.step_ns // 2
    read: list[int] = []
    one = parquet._values
    monkeypatch.setattr(parquet, "_values", lambda column: read.append(len(column)) or one(column))
    found = run_store.glimpse(wanted, (begin, end), roles)
    assert found is not None
    assert_same(found, whole.within((begin, end), roles))
    assert 0 < sum(read) / len(fields(whole.spans)) < len(whole.spans.start) / 2
    empty = run_store.glimpse(wanted, (2 * whole.step_ns, 3 * whole.step_ns), roles)
    assert empty is not None
    assert len(empty.spans.start) == 0
    assert run_store.glimpse(key(small, "group"), (0, 1), roles) is None


def test_a_table_is_written_row_group_by_row_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROWS", 100)
    values, path = np.arange(1050), tmp_path / "table.parquet"
    column = parquet.Column(values, missing=values < 7)
    with path.open("wb") as file:
        parquet.write_parquet(file, {"n": column}, {})
    groups = [*parquet.row_groups(path, {"n": (250, 320)})]
    assert [begin for begin, _ in groups] == [200, 300]
    assert groups[0][1]["n"].tolist() == [*range(200, 300)]
    assert pq.ParquetFile(path).metadata.num_row_groups == 11
