"""Phases side by side, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from twin.errors import UsageError
from twin.evidence.loop.page import loop_cells
from twin.evidence.loop.rl_loop import PAIRS, LoopOutcome, measured, medians, predicted
from twin.kinds.iteration.types import PHASES


def line(number: int, rollout: float, train: float, looked: float) -> str:
    phases = {"rollout": rollout, "switch": 0.1, "train": train, "update": 0.2, "wake": 0.1}
    return json.dumps(
        {"kind": "iteration", "iteration": number, "phases": phases, "looked_s": looked}
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [line(1, 9.0, 9.0, 1.0), '{"kind": "step"}', line(2, 2.0, 1.5, 0.5)]
    lines += [line(3, 3.0, 1.5, 0.5), line(4, 4.0, 3.5, 0.5)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_the_first_iteration_is_not_counted_and_scores_are_no_part_of_training(
    folder: Path,
) -> None:
    found = measured(folder)
    assert [one["rollout"] for one in found] == [2.0, 3.0, 4.0]
    assert [one["train"] for one in found] == [1.0, 1.0, 3.0]
    assert {one["score"] for one in found} == {0.5}


def test_errors_are_of_medians(folder: Path) -> None:
    told = dict.fromkeys(PAIRS, 1.0) | {"rollout": 3.3}
    one = LoopOutcome("a", told, tuple(measured(folder)), folder)
    assert one.errors["rollout"] == pytest.approx(0.1)
    assert one.errors["train"] == 0.0
    assert one.errors["score"] == 1.0
    assert one.seconds == (pytest.approx(8.3), pytest.approx(3.0 + 1.0 + 0.5 + 0.4))
    rows = [*loop_cells(one)]
    assert [row[1] for row in rows] == [*PAIRS, "iteration"]
    assert rows[0][4] == "+10.0 %"
    worse = LoopOutcome("b", {**told, "rollout": 6.0}, one.measured, folder)
    assert medians([one, worse])["rollout"] == pytest.approx((0.1 + 1.0) / 2)


def test_every_phase_of_the_twin_is_compared_with_something() -> None:
    told = predicted({phase: float(at) for at, phase in enumerate(PHASES)})
    assert sum(told.values()) == sum(range(len(PHASES)))


def test_a_run_of_one_iteration_is_told(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(line(1, 1.0, 1.0, 0.5) + "\n")
    with pytest.raises(UsageError, match=r"TW373.*1 iterations"):
        measured(tmp_path)
    with pytest.raises(UsageError, match="TW373"):
        measured(tmp_path / "nowhere")
