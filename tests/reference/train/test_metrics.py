"""The log of a run: one line per step, each step once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from reference import metrics
from reference.metrics import NAME, Evaluation, Metrics, StepMetrics, read_lines
from twin.errors import UsageError

STEP = StepMetrics(
    step=1,
    stage="train",
    tokens=8,
    loss=2.5,
    lr=0.1,
    gradient_norm=1.0,
    max_logit=3.0,
    clipped_heads=0,
    load_imbalance=1.5,
    seconds=0.5,
    tokens_per_s=16.0,
    mfu=None,
    kept_bytes=None,
    peak_bytes=10,
)


def write(folder: Path, *, last_step: int | None, upto: int) -> Metrics:
    with Metrics(folder, last_step=last_step, tensorboard=False) as log:
        for number in range((last_step or 0) + 1, upto + 1):
            log.step(replace(STEP, step=number))
            log.evaluation(Evaluation(number, "train", 2.0, 3.0, 100))
            log.event("checkpoint", number, name=f"step-{number}")
        return log


def test_on_resume_the_log_is_cut_back_to_the_checkpoint(tmp_path: Path) -> None:
    write(tmp_path, last_step=None, upto=5)
    log = write(tmp_path, last_step=3, upto=6)
    lines = read_lines(tmp_path / NAME)
    for kind in ("step", "evaluation", "checkpoint"):
        assert [line["step"] for line in lines if line["kind"] == kind] == [1, 2, 3, 4, 5, 6]
    assert [step.step for step in log.steps] == [1, 2, 3, 4, 5, 6]
    assert [one.step for one in log.evaluations] == [1, 2, 3, 4, 5, 6]
    assert log.steps[0] == STEP


def test_a_line_that_a_killed_process_left_unfinished_is_dropped(tmp_path: Path) -> None:
    write(tmp_path, last_step=None, upto=3)
    file = tmp_path / NAME
    file.write_text(file.read_text()[:-5])
    assert read_lines(file)[-1]["kind"] == "evaluation"
    write(tmp_path, last_step=3, upto=4)
    assert [line["step"] for line in read_lines(file) if line["kind"] == "step"] == [1, 2, 3, 4]


def test_a_stage_that_begins_again_is_told_once(tmp_path: Path) -> None:
    for last in (None, 2):
        with Metrics(tmp_path, last_step=last, tensorboard=False) as log:
            log.event("stage", 2, name="long")
            log.event("interrupted", 2)
    kinds = [line["kind"] for line in read_lines(tmp_path / NAME)]
    assert kinds == ["interrupted", "stage", "interrupted"]


def test_what_json_cannot_hold_is_null(tmp_path: Path) -> None:
    with Metrics(tmp_path, last_step=None, tensorboard=False) as log:
        log.step(replace(STEP, loss=float("nan"), max_logit=float("-inf")))
    line = json.loads((tmp_path / NAME).read_text())
    assert (line["loss"], line["max_logit"], line["gradient_norm"]) == (None, None, 1.0)


def test_what_nothing_counted_is_null_and_no_point_on_the_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Mock()
    monkeypatch.setattr(metrics, "_board", lambda *_: board)
    with Metrics(tmp_path, last_step=None, tensorboard=True) as log:
        log.step(STEP)
        log.step(replace(STEP, step=2, kept_bytes=7))
    shown = {call.args for call in board.add_scalar.call_args_list}
    assert {args for args in shown if args[0] == "step/kept_bytes"} == {("step/kept_bytes", 7, 2)}
    assert [line["kept_bytes"] for line in read_lines(tmp_path / NAME)] == [None, 7]
    with Metrics(tmp_path, last_step=2, tensorboard=False) as log:
        assert [step.kept_bytes for step in log.steps] == [None, 7]


def test_without_a_folder_the_history_is_in_memory() -> None:
    with Metrics(None, last_step=None, tensorboard=False) as log:
        log.step(STEP)
        log.event("stage", 0)
        log.sync()
    assert log.steps == [STEP]


def test_tensorboard_that_is_not_installed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match="TW239"):
        Metrics(tmp_path, last_step=None, tensorboard=True)
