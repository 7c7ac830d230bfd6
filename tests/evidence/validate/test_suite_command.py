"""`twin validate --suite`: what is typed, what is printed, what is written."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from tests.command import Command
from tests.evidence.validate.made import step
from twin.evidence.validate.suite import PublishedRow

SELECTIVE = {"tp": 8, "recompute": "selective", "sp": True}
ROWS = (
    step("full", 2.0),
    step("selective", 1.5, parallelism=SELECTIVE),
    step("near", 1.7, use="near-fit", gbs=8),
    step("abacus", 9.0, system={"gpu": "abacus", "gpus": 8}),
    step("garbled", 9.0, system={"gpu": "A100-80GB", "gpus": [96, 4608]}),
    step("unplaced", 9.0, system="a few GPUs"),
)
NUMBER, TEXT = {"type": ["number", "null"]}, {"type": "string"}
ROW_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": [
        "id", "metric", "predicted", "measured", "error", "interval", "use", "status", "reason",
    ],
    "properties": {
        "id": TEXT,
        "metric": TEXT,
        "predicted": NUMBER,
        "measured": NUMBER,
        "error": NUMBER,
        "interval": {"type": ["array", "null"], "items": {"type": "number"}, "minItems": 2},
        "use": {"enum": ["fit", "near-fit", "check"]},
        "status": {"enum": ["predicted", "not_expressible"]},
        "reason": TEXT,
    },
}  # fmt: skip
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["version", "rows", "summary"],
    "properties": {
        "version": {"const": 1},
        "rows": {"type": "array", "items": ROW_SCHEMA},
        "summary": {
            "type": "object",
            "required": ["bars", "metrics", "families", "training", "not_expressed", "pairs"],
        },
    },
    "additionalProperties": False,
}


def write(path: Path, rows: tuple[PublishedRow, ...] = ROWS) -> Path:
    with path.open("w") as file:
        YAML().dump({"measurements": [dict(row.fields) for row in rows]}, file)
    return path


@pytest.fixture
def suite(tmp_path: Path) -> str:
    return str(write(tmp_path / "rows.yaml"))


def test_the_document_holds_every_row_and_a_summary(twin_command: Command, suite: str) -> None:
    found = twin_command("validate", "--suite", suite, "--json")
    assert found.code == 0
    document = json.loads(found.out)
    Draft202012Validator(SCHEMA).validate(document)
    told = {one["id"]: one for one in document["rows"]}
    assert list(told) == [row.id for row in ROWS]
    assert told["full"]["measured"] == 2.0
    assert told["full"]["error"] == pytest.approx(told["full"]["predicted"] / 2.0 - 1.0)
    low, high = told["full"]["interval"]
    assert low < told["full"]["predicted"] < high
    assert {one["id"] for one in document["rows"] if one["reason"]} == {
        "abacus", "garbled", "unplaced",
    }  # fmt: skip


def test_only_check_rows_are_in_the_summary(twin_command: Command, suite: str) -> None:
    summary = json.loads(twin_command("validate", "--suite", suite, "--json").out)["summary"]
    (family,) = summary["families"]
    assert family["rows"] == 2
    assert summary["metrics"]["near-fit"]["step_seconds"]["rows"] == 1
    assert summary["pairs"]["check"]["pairs"] == 0, "two things differ: sequence ranks and memory"
    assert {one["reason"]: one["rows"] for one in summary["not_expressed"]} == {
        "the catalog has no GPU abacus": ["abacus"],
        "`gpus` is [96, 4608], and no count": ["garbled"],
        "`system` is no mapping": ["unplaced"],
    }


def test_people_get_families_reasons_and_pairs(twin_command: Command, tmp_path: Path) -> None:
    plain = step("selective", 1.5, parallelism={"tp": 8, "recompute": "selective"})
    file = write(tmp_path / "rows.yaml", (ROWS[0], plain, ROWS[3]))
    found = twin_command("validate", "--suite", str(file))
    assert found.code == 0
    assert "3 rows; 1 of them are not expressed." in found.out
    assert "step_seconds, 2 check rows of 1 families" in found.out
    assert "Not expressed, by reason" in found.out
    assert "the catalog has no GPU abacus" in found.out
    assert "A/B: the faster of two plans is named in 1 of 1 pairs" in found.out


def test_quietly_there_are_sentences_only(twin_command: Command, suite: str) -> None:
    found = twin_command("validate", "--suite", suite, "--quiet")
    assert len(found.out.splitlines()) == 2
    assert found.err == ""


def test_several_suites_are_one(twin_command: Command, tmp_path: Path) -> None:
    one, other = (write(tmp_path / f"{n}.yaml", (ROWS[n],)) for n in (0, 1))
    found = twin_command("validate", "--suite", str(one), "--suite", str(other), "--json")
    assert [one["id"] for one in json.loads(found.out)["rows"]] == ["full", "selective"]


@pytest.mark.parametrize(("limit", "code"), [("0.001", 5), ("1000", 0)])
def test_a_limit_decides_about_the_exit_code(
    twin_command: Command,
    suite: str,
    limit: str,
    code: int,
) -> None:
    found = twin_command("validate", "--suite", suite, "--only", "full", "--limit", limit, "-q")
    assert found.code == code


def test_a_text_that_no_row_has_is_said(twin_command: Command, suite: str) -> None:
    found = twin_command("validate", "--suite", suite, "--only", "kimi")
    assert found.code == 2
    assert "TW381 no row of 6 has `kimi`" in found.err


def test_a_file_without_rows_is_said(twin_command: Command, tmp_path: Path) -> None:
    (tmp_path / "rows.yaml").write_text("measurements: []\n")
    found = twin_command("validate", "--suite", "rows.yaml")
    assert found.code == 2
    assert "TW381" in found.err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.yaml", "a: [1\n"),
        ("rows.yaml", "rows: []\n"),
        ("rows.csv", "a,b\n1,2\n"),
        ("rows.txt", "rows\n"),
        ("rows.yaml", "\x00\x01"),
    ],
    ids=["no YAML", "no measurements", "other columns", "neither", "no text"],
)
def test_what_is_no_suite_is_refused(
    twin_command: Command,
    tmp_path: Path,
    name: str,
    text: str,
) -> None:
    (tmp_path / name).write_text(text)
    found = twin_command("validate", "--suite", name)
    assert found.code == 2
    assert "TW380" in found.err


def test_a_scenario_that_is_written_gives_the_same_answer(
    twin_command: Command,
    suite: str,
    tmp_path: Path,
) -> None:
    found = twin_command("validate", "--suite", suite, "--write", "scenarios", "--json")
    told = {one["id"]: one["predicted"] for one in json.loads(found.out)["rows"]}
    names = sorted(path.stem for path in (tmp_path / "scenarios").glob("*.yaml"))
    assert names == ["full", "near", "selective"]
    again = twin_command("run", "scenarios/full.yaml", "--json", "--no-cache")
    assert json.loads(again.out)["kpis"]["step_seconds"] == told["full"]


def test_names_of_files_stay_in_their_folder(twin_command: Command, tmp_path: Path) -> None:
    rows = (step("../../full"), step("a/b"), step("a b"))
    file = write(tmp_path / "rows.yaml", rows)
    twin_command("validate", "--suite", str(file), "--write", "deep/scenarios", "-q")
    names = sorted(path.name for path in (tmp_path / "deep" / "scenarios").glob("*.yaml"))
    assert names == ["a-b-2.yaml", "a-b.yaml", "full.yaml"]


def test_the_table_has_every_answer(twin_command: Command, suite: str, tmp_path: Path) -> None:
    twin_command("validate", "--suite", suite, "--table", "rows.csv", "-q")
    with (tmp_path / "rows.csv").open() as file:
        told = {cells["id"]: cells for cells in csv.DictReader(file)}
    assert set(told) == {row.id for row in ROWS}
    assert float(told["full"]["low"]) < float(told["full"]["predicted"])
    assert float(told["full"]["efficiency"]) > 0
    assert told["abacus"]["predicted"] == ""


def test_the_page_has_a_picture_and_every_section(
    twin_command: Command,
    suite: str,
    tmp_path: Path,
) -> None:
    twin_command("validate", "--suite", suite, "--report", "page.md", "-q")
    page = (tmp_path / "page.md").read_text()
    assert "![Predicted against measured seconds of a step](page.svg)" in page
    for title in ("Limits", "By family", "intervals held", "worst rows", "Not expressed", "faster"):
        assert title in page
    assert (tmp_path / "page.svg").read_text().count('class="dot') == 2 + 1


def test_residuals_are_of_rows_that_do_not_judge(twin_command: Command, tmp_path: Path) -> None:
    """Of a source that no fit saw, so that none has to be made again."""
    source = {"title": "nobody's paper"}
    rows = (step("near", use="near-fit", source=source), step("judges", source=source))
    suite = str(write(tmp_path / "rows.yaml", rows))
    twin_command("validate", "--suite", suite, "--residuals", "residuals.json", "-q")
    told = json.loads((tmp_path / "residuals.json").read_text())
    assert [(one["id"], one["assumed"]) for one in told["residuals"]] == [("near", False)]


def test_a_folder_that_is_not_there_is_said(twin_command: Command, tmp_path: Path) -> None:
    suite = str(write(tmp_path / "rows.yaml", (ROWS[3],)))
    for option in ("--table", "--report", "--residuals"):
        found = twin_command("validate", "--suite", suite, option, "no/file", "-q")
        assert found.code == 2
        assert "TW063" in found.err
