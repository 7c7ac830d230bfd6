"""Engines of a scenario over users and context: ranges, twice the heads, and the command line."""

from __future__ import annotations

import json

import pytest

from twin.cli.main import main
from twin.inference.curve import CONTEXTS
from twin.loading import load
from twin.reports.serving import DATA, ROLLOUT, Serving, sentence, serving

ROLLOUTS, PLAIN = "kimi-k2-rollout-256xh800", "gpt-175b-64xa100-full"
ENGINE = "deepep-32gpu"


@pytest.fixture(scope="module")
def found() -> Serving:
    (one,) = serving(load(ROLLOUTS))
    return one


def test_the_command_line_says_the_same(
    found: Serving, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["explain", ROLLOUTS, "serving", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["topic"] == "serving"
    assert document["engines"] == json.loads(json.dumps([found.to_json()]))
    assert main(["explain", PLAIN, "serving"]) == 3
    assert "TW190" in capsys.readouterr().err


def test_heads_are_compared_by_the_conventions_of_the_study(found: Serving) -> None:
    """+83 % under the report's count, whose figure is for 128k; the cache does not change."""
    report, absorbed = found.twice("flop_report"), found.twice("flop_absorbed")
    step, cache, users = found.twice("step"), found.twice("cache"), found.twice("users")
    assert report is not None
    assert absorbed is not None
    assert step is not None
    assert cache is not None
    assert users is not None
    changes = [one.change or 0.0 for one in (absorbed, report, step)]
    assert changes[1] == pytest.approx(0.83, abs=0.005)
    assert changes == sorted(changes, reverse=True)
    assert changes[-1] > 0
    assert cache.change == 0
    assert users.own == found.curve.contexts[-1].points[-1].users
    assert users.twice is not None
    assert users.own is not None
    assert users.twice < users.own


def test_ranges_of_inputs_reach_to_both_sides_and_name_what_moves_most(found: Serving) -> None:
    for one in found.reach.values():
        assert one.low < 1 < one.high
        assert one.drivers
    wider = serving(load(ROLLOUTS, [f"{ROLLOUT}.step_overhead=2ms"]))[0]
    # A number that was chosen has no range any more.
    assert f"{ROLLOUT}.step_overhead" in found.reach[CONTEXTS[0]].drivers
    assert f"{ROLLOUT}.step_overhead" not in wider.reach[CONTEXTS[0]].drivers


def test_every_engine_of_a_scenario_is_found() -> None:
    both = serving(load(ROLLOUTS, [f"{DATA}={ENGINE}", f"{DATA}.gpus=16"]))
    assert [(one.path, one.curve.gpus) for one in both] == [(ROLLOUT, 32), (DATA, 16)]


def test_an_engine_without_room_says_so() -> None:
    (none,) = serving(load(PLAIN, [f"{DATA}={{gpus: 4, tensor: 4, precision: bf16}}"]))
    assert "no room for one sequence of 4,096 tokens" in sentence(none)
    assert none.reach == {}
