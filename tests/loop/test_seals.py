"""Predictions of layouts are sealed and checked, so that later ones have intervals: with a trainer
that writes a timeline at once, whatever it is asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.measured.timelines import pipeline
from twin.live.seals import shelf
from twin.loop import Asked, Outcome, find, predict_then_run, score

SMALL = ["train.sequence=32tok", "train.global_batch=4seq", "parallel.schedule=gpipe"]


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders of runs that were started, with seals on a shelf of their own."""
    monkeypatch.setenv("TWIN_SEALS", str(tmp_path / "seals"))
    found: list[Path] = []

    def start(words: Sequence[str], log: Path) -> None:
        configuration = Path(words[-2])
        asked = json.loads(configuration.read_text())["train"]
        found.append(pipeline(Path(asked["output"]), asked["steps"]))
        log.write_text("done")

    monkeypatch.setattr("twin.loop.run.start", start)
    return found


def ask(folder: Path, rates: Sequence[str]) -> list[Outcome]:
    """Predict two stages over links of these rates, and run them."""
    layouts = [
        layout
        for rate in rates
        for layout in find(["pp2-1gbps"], sets=[*SMALL, f"cluster.node.nic.bandwidth={rate}"])
    ]
    return list(predict_then_run(layouts, Asked(folder, steps=3, shaped=True)))


def test_the_fifth_of_five_has_the_interval_that_the_first_four_give(
    tmp_path: Path, started: list[Path]
) -> None:
    """Four residuals: their largest reaches to both sides (ceil(0.8 x 5) = 4)."""
    found = ask(tmp_path / "runs", ["100Mbps", "200Mbps", "300Mbps", "400Mbps", "500Mbps"])
    assert len(started) == len(shelf().checks) == 5
    assert all(one.sealed for one in found)
    assert [one.interval is None for one in found] == [True] * 4 + [False]
    factor = max(max(one.error + 1, 1 / (one.error + 1)) for one in found[:4])
    fifth = found[4]
    assert fifth.interval == pytest.approx((fifth.predicted / factor, fifth.predicted * factor))
    (told,) = score(found)
    assert (told.intervals, told.hits) == (1, int(fifth.hit is True))
    assert shelf().hit_rate.counted == 1


def test_a_layout_that_was_run_is_neither_run_nor_checked_again(
    tmp_path: Path, started: list[Path]
) -> None:
    first = ask(tmp_path / "runs", ["100Mbps"])
    again = ask(tmp_path / "runs", ["100Mbps"])
    assert len(started) == len(shelf().checks) == 1
    assert again[0].to_json() == first[0].to_json()
    assert again[0].sealed
