"""What the twin met blind: how many sealed intervals held, and that today's hold what they do not
know."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.evidence.validate.rows import shipped
from twin.evidence.validate import blind
from twin.evidence.validate.blind import BlindStep, figures
from twin.reports import interval
from twin.reports.interval import Known

HELD = {1: (76, 30), 2: (96, 62), 3: (81, 42), 4: (84, 56)}
"""Steps of each round, and how many lay inside the interval that was sealed."""


@cache
def met() -> tuple[BlindStep, ...]:
    return blind.steps()


def test_sealed_intervals_held_half_of_the_steps() -> None:
    for number, (steps, held) in HELD.items():
        own = [one for one in met() if one.round == number]
        assert (len(own), sum(one.held for one in own)) == (steps, held)
    assert figures(met())["held as sealed"] < 0.6


def test_four_in_five_sources_lie_in_intervals_that_do_not_know_them() -> None:
    """Each source left out, and each with its whole round: the share of a source's steps that are
    inside, and of these the mean."""
    found = figures(met())
    assert 0.75 <= found["held, source left out"] <= 0.9
    assert 0.75 <= found["held, round left out"] <= 0.9


def test_corrections_by_other_sources_and_other_rounds_come_nearer() -> None:
    found = figures(met())
    assert found["error, corrected"] < found["error"]
    assert found["by other rounds"] < found["error"]


def test_named_software_knows_nothing_of_blind_sources() -> None:
    at, known = met()[0].residual.at, interval.shipped()
    for assumed in (False, True):
        own = replace(at, assumed=assumed)
        told = [
            interval.reach(own, "step_seconds", some) for some in (known, Known(known.residuals))
        ]
        assert (told[0] == told[1]) is not assumed
        assert told[0] is not None
        assert told[0].blind is assumed


def test_blind_steps_are_rows_of_the_suite_under_software_that_nobody_named() -> None:
    known = interval.shipped().blind
    assert all(shipped(one.id).category == "train_step" for one in known)
    assert all(one.at.assumed and one.metric == "step_seconds" for one in known)


def test_a_new_round_is_sealed_once(tmp_path: Path) -> None:
    """Lines of the next round from a suite; never of a source that was here."""
    row = {
        "id": "new",
        "category": "train_step",
        "use": "check",
        "source": {"title": "nobody's trainer"},
        "system": {"gpu": "A100-80GB", "gpus": 8, "network": "single node"},
        "model": "gpt-1.7b",
        "parallelism": {"tp": 8, "recompute": "full"},
        "precision": "BF16",
        "gbs": 4,
        "mbs": 4,
        "seq": 2048,
        "metrics": {"step_s": 2.0},
    }
    suite = tmp_path / "new.yaml"
    suite.write_text(json.dumps({"measurements": [row]}))
    (line,) = map(json.loads, blind.sealed(suite))
    assert (line["round"], line["id"], line["assumed"]) == (
        1 + max(one.round for one in met()),
        "new",
        True,
    )
    low, high = line["interval"]
    assert 0.0 < low < high
    suite.write_text(
        json.dumps({"measurements": [row | {"source": {"title": "torchprime, more"}}]})
    )
    with pytest.raises(ValueError, match="torchprime"):
        tuple(blind.sealed(suite))
