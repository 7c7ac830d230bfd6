"""Predictions of layouts are sealed and checked, so that later ones have intervals: with a trainer
that writes a timeline at once, whatever it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from twin.evidence.calibrate.columns import steps
from twin.evidence.calibrate.table import read_table
from twin.evidence.live.seals import read_seals
from twin.evidence.loop.layouts import find
from twin.evidence.loop.outcome import LayoutOutcome, score
from twin.evidence.loop.page import write_table
from twin.evidence.loop.run import RunOptions, predict_then_run

SMALL = ["train.sequence=32tok", "train.global_batch=4seq", "parallel.schedule=gpipe"]


def ask(folder: Path, rates: Sequence[str], rounds: int | None = None) -> list[LayoutOutcome]:
    """Predict two stages over links of these rates, and run them."""
    layouts = [
        layout
        for rate in rates
        for layout in find(["pp2-1gbps"], sets=[*SMALL, f"cluster.node.nic.bandwidth={rate}"])
    ]
    asked = RunOptions(folder, shaped=True, steps=3, rounds=rounds)
    return list(predict_then_run(layouts, asked))


def test_the_fifth_of_five_has_the_interval_that_the_first_four_give(
    tmp_path: Path, started: list[Path]
) -> None:
    """Four residuals: their largest reaches to both sides (ceil(0.8 x 5) = 4)."""
    found = ask(tmp_path / "runs", ["100Mbps", "200Mbps", "300Mbps", "400Mbps", "500Mbps"])
    assert len(started) == len(read_seals().checks) == 5
    assert all(one.sealed for one in found)
    assert [one.interval is None for one in found] == [True] * 4 + [False]
    factor = max(max(one.error + 1, 1 / (one.error + 1)) for one in found[:4])
    fifth = found[4]
    assert fifth.interval == pytest.approx((fifth.predicted / factor, fifth.predicted * factor))
    (told,) = score(found)
    assert (told.intervals, told.hits) == (1, int(fifth.hit is True))
    assert read_seals().hit_rate.counted == 1


def test_a_layout_that_was_run_is_neither_run_nor_checked_again(
    tmp_path: Path, started: list[Path]
) -> None:
    first = ask(tmp_path / "runs", ["100Mbps"])
    again = ask(tmp_path / "runs", ["100Mbps"])
    assert len(started) == len(read_seals().checks) == 1
    assert again[0].to_json() == first[0].to_json()
    assert again[0].sealed


def test_rounds_go_through_the_list_and_count_together(tmp_path: Path, started: list[Path]) -> None:
    found = ask(tmp_path / "runs", ["100Mbps", "200Mbps"], rounds=2)
    names = [place.parent.name for place in started]
    assert names[:2] == names[2:], "each layout once before any again"
    assert [place.name for place in started] == ["run", "run", "run-2", "run-2"]
    assert [len(one.steps) for one in found] == [4, 4], "two counted steps of each of two runs"
    assert len(read_seals().checks) == 2


def test_a_table_of_layouts_is_read_by_calibrate(tmp_path: Path, started: list[Path]) -> None:
    """Each row's scenario is the layout that was run."""
    assert not started
    found = find(["pp2-1gbps", "pp2-m16-200mbps"])
    rows = list(predict_then_run(found, RunOptions(tmp_path / "runs", shaped=True, steps=3)))
    write_table(tmp_path / "steps.csv", found, rows)
    read = steps(read_table(tmp_path / "steps.csv"), None, ())
    assert [one.scenario for one in read] == [one.scenario for one in found]
    assert [one.measured for one in read] == pytest.approx([one.measured for one in rows], rel=1e-3)
    assert [one.name for one in read] == ["pp2-1gbps", "pp2-m16-200mbps"]
