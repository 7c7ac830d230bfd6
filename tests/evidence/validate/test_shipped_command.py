"""`twin validate --shipped` and `--answers`: answers that are kept, told without a simulation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import twin.evidence.validate
from tests.command import Command
from tests.evidence.validate.made import step
from tests.evidence.validate.test_suite_command import write
from twin.evidence.validate import shipped_answers
from twin.evidence.validate.shipped_answers import ShippedAnswers
from twin.evidence.validate.summary import sentence

ROWS = (
    step("full", 2.0),
    step("again", 1.9),
    step("fitted", 2.0, use="fit"),
    step("none", gbs=None),
)


@pytest.fixture
def answers(
    twin_command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> ShippedAnswers:
    """Answers to a few rows, as if they were those that ship."""
    write(tmp_path / "rows.yaml", ROWS)
    done = twin_command("validate", "--suite", "rows.yaml", "--answers", "answers.json", "-q")
    assert done.code == 0
    found = shipped_answers.read(tmp_path / "answers.json")
    monkeypatch.setattr(shipped_answers, "shipped", lambda: found)
    return found


def test_what_is_kept_is_told_as_if_it_were_predicted_now(
    twin_command: Command,
    answers: ShippedAnswers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live = json.loads(twin_command("validate", "--suite", "rows.yaml", "--json").out)
    monkeypatch.setattr(twin.evidence.validate, "validate", None)  # predicts
    told = json.loads(twin_command("validate", "--shipped", "--json").out)
    assert {one["id"]: one["reason"] for one in told["rows"]} == {
        one["id"]: one["reason"] for one in live["rows"]
    }
    errors = told["summary"]["metrics"]["check"]["step_seconds"]
    assert errors == pytest.approx(live["summary"]["metrics"]["check"]["step_seconds"], abs=1e-5)
    assert [one["calibration"] for one in told["rows"]] == [
        one["calibration"] for one in live["rows"]
    ]
    assert not answers.is_older


def test_people_get_the_sentence_and_the_lines_first(
    twin_command: Command,
    answers: ShippedAnswers,
) -> None:
    found = twin_command("validate", "--shipped")
    assert found.out.startswith(sentence(answers.summary))
    assert "Errors by kind of row" in found.out
    assert found.err == ""


def test_a_part_of_them_can_be_asked_for(twin_command: Command, answers: ShippedAnswers) -> None:
    del answers
    told = json.loads(twin_command("validate", "--shipped", "--only", "full", "--json").out)
    assert [one["id"] for one in told["rows"]] == ["full"]
    found = twin_command("validate", "--shipped", "--only", "kimi")
    assert found.code == 2
    assert "TW381 no answer of 4 has `kimi`" in found.err


def test_older_answers_are_told_with_a_warning(
    twin_command: Command,
    answers: ShippedAnswers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shipped_answers, "made_from", lambda: "another")
    found = twin_command("validate", "--shipped")
    assert found.code == 0
    assert f"Predicted on {answers.day}" in found.err


def test_where_none_ship_that_is_said(twin_command: Command, monkeypatch) -> None:
    monkeypatch.setattr(shipped_answers, "shipped", lambda: None)
    found = twin_command("validate", "--shipped")
    assert found.code == 2
    assert "TW381 there is no answer" in found.err


@pytest.mark.parametrize(
    "options",
    [("--suite", "x"), ("--write", "x"), ("--answers", "x"), ("--processes", "2"),
     ("--residuals", "x"), ("--leave-one-out",)],
    ids=lambda one: one[0],
)  # fmt: skip
def test_what_asks_for_predictions_is_refused(twin_command: Command, options) -> None:
    found = twin_command("validate", "--shipped", *options)
    assert found.code == 2
    assert "--shipped makes none" in " ".join(found.err.split())


def test_reference_and_shipped_are_two_questions(twin_command: Command) -> None:
    found = twin_command("validate", "--reference", "--shipped")
    assert found.code == 2
