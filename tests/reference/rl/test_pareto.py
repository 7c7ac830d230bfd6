"""Several rewards: what they weigh, and the front that runs with different weights make."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.agentic.environment import Verdict
from reference.metrics import NAME
from reference.rl.pareto import RunPoint, front, main
from reference.rl.records import NOBODY, PromptGroup, Response
from reference.rl.rewards import RewardsSpec, give, part, parts, reward
from tests.reference.rl.worlds import CHARACTERS, responses


def group(*told: tuple[int, bool]) -> list[Response]:
    """Responses of so many tokens, right or wrong."""
    found = responses(dict(list(CHARACTERS.items())[:1]), len(told))
    for one, (length, right) in zip(found, told, strict=True):
        one.versions = [0] * length + [NOBODY] * 3
        one.verdict = Verdict({"right": right, "form": True})
        one.ended = "over"
    return found


def test_rewards_are_weighed_by_name() -> None:
    some = group((4, True), (8, False), (12, True))
    spec = RewardsSpec(weights={"success": 1.0, "form": 0.25, "length": 0.5})
    give([PromptGroup(0, "", some)], spec, 0)
    assert [one.reward for one in some] == [1.5, 0.25, 1.0]
    assert parts([PromptGroup(0, "", some)], spec) == {
        "success": pytest.approx(2 / 3),
        "form": 1.0,
        "length": 0.0,
    }
    assert part(some[0], "no such criterion", some) == 0


def test_the_length_reward_is_that_of_k15() -> None:
    # arXiv:2501.12599, section 2.3.3: 0.5 for the shortest to -0.5; wrong ones never above 0.
    some = group((2, True), (4, True), (6, True), (2, False), (6, False))
    assert [part(one, "length", some) for one in some] == [0.5, 0.0, -0.5, 0.0, -0.5]
    same = group((3, True), (3, False))
    assert [part(one, "length", same) for one in same] == [0, 0]
    assert reward(same[0], RewardsSpec(), same) == 1


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), max_size=12))
def test_the_front_is_what_nothing_dominates_and_dominates_the_rest(
    rows: list[tuple[int, int, int]],
) -> None:
    names = ("a", "-b", "c")
    points = [RunPoint("", {"a": a, "b": -b, "c": c}) for a, b, c in rows]
    best = front(points, names)
    kept = [row for row, held in zip(rows, best, strict=True) if held]
    for row, held in zip(rows, best, strict=True):
        beaten = any(other != row and all(map(int.__ge__, other, row)) for other in kept)
        assert held is not beaten
    assert bool(kept) is bool(rows)


def write_run(folder: Path, rows: list[tuple[float, float]]) -> str:
    folder.mkdir()
    lines = [
        {"kind": "iteration", "success": s, "length": t, "score": None, "parts": {"form": 1.0}}
        for s, t in rows
    ]
    text = "".join(json.dumps(one) + "\n" for one in [{"kind": "step"}, *lines])
    (folder / NAME).write_text(text)
    return str(folder)


def test_the_command_draws_runs_and_tells_the_front(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [
        write_run(tmp_path / "short", [(0.0, 99.0), (0.4, 10.0), (0.6, 20.0)]),
        write_run(tmp_path / "long", [(0.9, 40.0)]),
        write_run(tmp_path / "worse", [(0.5, 41.0)]),
    ]
    out = tmp_path / "front.html"
    assert main([*runs, "--last", "2", "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["run"], one["front"]) for one in told["runs"]] == [
        ("short", True),
        ("long", True),
        ("worse", False),
    ]
    assert told["runs"][0]["rewards"] == {"success": 0.5, "tokens": 15.0, "form": 1.0}
    page = out.read_text()
    assert "2 of 3 runs are on the front" in page
    assert "src=" not in page.split("<body>")[0], "it needs no network"


def test_what_cannot_be_drawn_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", [(0.5, 4.0)])
    for words in ([str(tmp_path)], [run, "--of", "success,shine"], [run, "--of", "success"]):
        assert main(words) == 2
        assert "TW656" in capsys.readouterr().err
