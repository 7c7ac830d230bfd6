"""Answers that are kept: what is read is what was written, and their age is known."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evidence.validate.made import answer, residual
from twin.errors import UsageError
from twin.evidence.validate import score, shipped_answers
from twin.evidence.validate.acceptance_limits import steps
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.baselines import BASELINES
from twin.evidence.validate.pairs import RowPair
from twin.evidence.validate.suite import read_suite
from twin.evidence.validate.summary import Summary, summarize
from twin.evidence.validate.validate import ANSWERS as BY_CATEGORY
from twin.loading.files import shipped_folder
from twin.reports.interval import Known

ANSWERS = (
    answer("one", 0.123456, interval=(1.5, 2.5), stack="nemo", assumed=("a", "b"), experts=False),
    answer("two", -0.25, gpu="B200", calibration="b200-nemo", experts=True),
    answer("near", 0.5, use="near-fit"),
    answer("near", 0.5, use="near-fit", metric="peak_device_bytes"),
    answer("refused", None, reproducible=False, gpus=None),
    answer("kernel", 0.1, category="kernel", metric="kernel_seconds", use="fit"),
)


@pytest.fixture
def summary() -> Summary:
    told = residual("fitted", 0.1, fitted=True)
    found = summarize((), ANSWERS, Known((told,)), ())
    pairs = (RowPair(found.answers[0], found.answers[2], "tp", ("8", "-"), "near-fit"),)
    left_out = (replace(found.answers[5], predicted=2.5),)
    return replace(found, rows=6, pairs=pairs, left_out=left_out)


def again(summary: Summary, folder: Path) -> Summary:
    shipped_answers.write(folder / "answers.json", shipped_answers.now(summary))
    return shipped_answers.read(folder / "answers.json").summary


def plain(one: RowResult) -> RowResult:
    """An answer as a file has it: no FLOP, no circumstances, six digits."""
    return replace(
        one, flop=None, at=None, predicted=one.predicted and float(f"{one.predicted:.6g}")
    )


def test_what_is_read_is_what_was_written(summary: Summary, tmp_path: Path) -> None:
    found = again(summary, tmp_path)
    by_name = {(one.id, one.metric): one for one in found.answers}
    assert by_name == {(one.id, one.metric): plain(one) for one in summary.answers}
    assert found.rows == 6
    (pair,) = found.pairs
    assert (pair.faster.id, pair.choice, pair.values, pair.use) == (
        "one",
        "tp",
        ("8", "-"),
        "near-fit",
    )
    assert [(one.id, one.predicted) for one in found.left_out] == [("kernel", 2.5)]


def test_baselines_are_those_that_were_asked(summary: Summary, tmp_path: Path) -> None:
    found = again(summary, tmp_path)
    assert summary.baselines["efficiency"]
    for name in BASELINES:
        told = {one.id: one.predicted for one in summary.baselines[name]}
        assert {one.id: one.predicted for one in found.baselines[name]} == pytest.approx(
            told, rel=1e-5
        )


def test_statistics_of_what_is_read_are_those_of_what_was_written(
    summary: Summary, tmp_path: Path
) -> None:
    found = again(summary, tmp_path)
    for own in (score.judged, steps):
        told, read = score.errors(own(summary.answers)), score.errors(own(found.answers))
        assert read is not None
        assert told is not None
        assert read.to_json() == pytest.approx(told.to_json(), rel=1e-4)


def test_a_file_that_cannot_be_written_is_said(summary: Summary, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="TW063"):
        shipped_answers.write(tmp_path / "no" / "answers.json", shipped_answers.now(summary))


def test_a_part_has_the_pairs_and_baselines_of_its_answers_only(summary: Summary) -> None:
    part = summary.part(lambda one: one.id == "one")
    assert [one.id for one in part.answers] == ["one"]
    assert part.pairs == part.left_out == ()
    assert {one.id for own in part.baselines.values() for one in own} <= {"one"}


def test_answers_are_older_once_the_twin_or_its_data_change(
    monkeypatch: pytest.MonkeyPatch, summary: Summary, tmp_path: Path
) -> None:
    data, code = tmp_path / "scenarios", tmp_path / "twin"
    for file in ("catalog/gpus/x.yaml", "published/rows.csv", "published/answers.json"):
        (data / file).parent.mkdir(parents=True, exist_ok=True)
        (data / file).write_text("1")
    for file in ("engine/a.py", "ui/b.py"):
        (code / file).parent.mkdir(parents=True)
        (code / file).write_text("1")
    monkeypatch.setattr(shipped_answers, "SOURCE", code)
    monkeypatch.setattr(shipped_answers, "shipped_folder", lambda: data)
    made = shipped_answers.now(summary)
    for file in (data / "published" / "answers.json", code / "ui" / "b.py"):
        file.write_text("2")
        assert not made.is_older, file
    for file in (data / "catalog" / "gpus" / "x.yaml", data / "published" / "rows.csv",
                 code / "engine" / "a.py"):  # fmt: skip
        file.write_text("2")
        assert made.is_older, file
        file.write_text("1")


def test_no_room_that_only_shows_answers_takes_part_in_them() -> None:
    program = (
        "import sys, pkgutil, importlib, twin.evidence.validate as room\n"
        "for one in pkgutil.iter_modules(room.__path__):\n"
        "    importlib.import_module(f'twin.evidence.validate.{one.name}')\n"
        "print(*(name[5:].replace('.', '/') for name in sys.modules if name.startswith('twin.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    imported = done.stdout.split()
    assert "engine" in imported
    assert not [room for room in imported if room.startswith(shipped_answers.ONLOOKERS)]


def test_the_answers_that_ship_are_of_the_rows_that_ship() -> None:
    file = shipped_folder() / "published" / shipped_answers.FILE
    assert file.stat().st_size < 700_000
    told = shipped_answers.shipped()
    assert told is not None
    rows = read_suite()
    assert told.summary.rows == len(rows)
    assert {one.id.partition("[")[0] for one in told.summary.answers} >= {
        row.id for row in rows if row.category == "train_step"
    }
    assert {one.category for one in told.summary.answers} <= set(BY_CATEGORY)
    assert json.loads(file.read_text())["version"] == shipped_answers.VERSION
