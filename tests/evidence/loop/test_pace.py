"""The pace of ranks that sleep: one that the machine holds, or no measurement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from tests.evidence.loop.test_seals import ask
from twin.evidence.live.seals import read_seals
from twin.evidence.loop.layouts import drawn
from twin.evidence.loop.outcome import LATE, score
from twin.evidence.loop.run import ROOM, SLOWER, TRIES, _fitting, _late

MS = 1_000_000


def test_a_pace_fits_when_no_pass_takes_a_twentieth_longer() -> None:
    """A stretch of 1 ms that takes 5 takes 7 with room, so that a pass of 1 + 99 ms is 106 long:
    6 % beyond. Of a pass 1.05 times as slow, 7 + 103.95 of 105 ms are 5.7 % beyond; of the next,
    7 + 109.1 of 110.25 are 5.3 %, then 7 + 114.6 of 115.8 are 5.05 %, and then 4.8."""
    pace, taken = (1 * MS, 99 * MS), (5 * MS, 99 * MS)
    assert ROOM == 1.5
    assert _late(1.0, pace, taken)
    assert _fitting([(pace, taken)]) == pytest.approx(1.05**4)
    assert _fitting([(pace, pace)]) == 1.0


def test_one_late_pass_in_a_hundred_may_overrun() -> None:
    pace, taken = (10 * MS,), (20 * MS,)
    assert _fitting([(pace, taken), *[(pace, pace)] * 99]) == 1.0
    assert LATE == 0.01
    assert _fitting([(pace, taken), *[(pace, pace)] * 98]) > 1.0


def test_stretches_behind_the_last_have_its_pace() -> None:
    """As the trainer's (`reference.parallel.overlap.Pace`)."""
    assert not _late(1.0, (10 * MS, 2 * MS), (10 * MS, 2 * MS))
    assert _late(1.0, (10 * MS, 2 * MS), (10 * MS, 2 * MS, 2 * MS))


def test_a_run_whose_passes_overran_is_predicted_and_run_again_slower(
    tmp_path: Path,
    started: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = iter([0.5, 0.02])
    monkeypatch.setattr("twin.evidence.loop.run.overruns", lambda *_: next(late, 0.0))
    (found,) = ask(tmp_path / "runs", ["100Mbps"])
    assert (found.tries, found.slowed) == (3, pytest.approx(SLOWER**2))
    assert found.sealed
    assert found.held
    assert len(started) == 3
    (note,) = tmp_path.glob("runs/*/slowed.json")
    assert json.loads(note.read_text()) == pytest.approx([1.0, SLOWER, SLOWER**2])
    (again,) = ask(tmp_path / "runs", ["100Mbps"])
    assert again.to_json() == found.to_json()
    assert len(started) == 3, "it was not run again"
    assert len(read_seals().checks) == 1, "runs that were no measurement are not checked"


def test_what_overruns_every_pace_is_not_scored(
    tmp_path: Path,
    started: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for place in ("run", "outcome"):
        monkeypatch.setattr(f"twin.evidence.loop.{place}.overruns", lambda *_: 0.5)
    (found,) = ask(tmp_path / "runs", ["100Mbps"])
    assert len(started) == found.tries == TRIES
    assert not found.held
    assert score([found]) == ()
    assert not read_seals().checks


@pytest.mark.parametrize("mode", ["paced", "bare"])
def test_drawn_layouts_are_those_of_their_seed(mode: Literal["paced", "bare"]) -> None:
    found = drawn(4, 7, mode)
    assert [one.scenario for one in found] == [one.scenario for one in drawn(4, 7, mode)]
    assert {one.mode for one in found} == {mode}
    assert len({one.name for one in found}) == 4
    rates = [one.scenario.cluster.node.nic.bandwidth * 8 for one in found]
    assert all(100e6 <= rate <= 5e9 for rate in rates)
