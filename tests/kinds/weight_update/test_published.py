"""Measured updates: two rows are fitted, the others judge."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.kinds.weight_update.updates import H800, seconds
from twin.evidence.calibrate.weight_update import Measured, fit, measured, predicted
from twin.loading import load_part

FILE = Path(__file__).parents[3] / "scenarios" / "published" / "weight-update.yaml"
ROWS = YAML(typ="safe").load(FILE.read_text())["measurements"]
EXPRESSED = [row for row in ROWS if "not_expressible" not in row]
SCORED = measured([row for row in EXPRESSED if row["system"]["gpu"] == "H20"])
UPDATER = load_part("updaters", "checkpoint-engine-vllm").spec


def found(word: str, event: str = "update") -> Measured:
    (one,) = (m for m in SCORED if m.id == f"checkpoint-engine-new-{word}, {event}")
    return one


def test_the_catalog_holds_the_fit_of_the_rows_marked_for_it() -> None:
    assert sum(one.use == "fit" for one in SCORED) == 4  # of two rows: update and recovery
    best = fit(SCORED)
    assert UPDATER.efficiency == pytest.approx(best["efficiency"], rel=0.005)
    assert UPDATER.hop == pytest.approx(best["hop"], rel=0.005)
    assert UPDATER.regroup == pytest.approx(best["regroup"], rel=0.005)


def test_gathering_is_the_mean_of_the_fitted_rows() -> None:
    gathered = [row["metrics"]["gather_metas_s"] for row in ROWS if row["use"] == "fit"]
    assert pytest.approx(sum(gathered) / len(gathered)) == UPDATER.gather


@pytest.mark.parametrize("name", ["kimi-k2-16xh20", "kimi-k2-256xh20"])
@pytest.mark.parametrize("event", ["update", "recover"])
def test_kimi_k2_is_within_ten_percent_of_its_measured_updates(name, event) -> None:
    """14.36 s on 16 H20, 16.04 s on 256; none of them was fitted."""
    one = found(name, event)
    assert one.use == "check"
    assert predicted(one) == pytest.approx(one.seconds, rel=0.10)


def test_kimi_k2_on_256_h800_takes_less_than_the_reports_thirty_seconds() -> None:
    assert seconds(H800) < 30


def test_updates_by_the_older_version_are_too_fast_and_its_recoveries_out_of_reach() -> None:
    """It fetched and broadcast in turn, through the first rank: no row of the fit knows that."""
    old = [one for one in SCORED if "-old-" in one.id]
    updates = [predicted(one) / one.seconds for one in old if one.event == "update"]
    recoveries = [predicted(one) / one.seconds for one in old if one.event == "recover"]
    assert all(0.8 < ratio < 1.0 for ratio in updates)
    assert all(ratio < 0.5 for ratio in recoveries)


def test_two_rows_cannot_tell_slow_broadcasts_from_slow_reloads() -> None:
    """The rival: all NICs busy at their full rate, and some 100 us of host time per tensor."""
    rival = {"nics": 8, "efficiency": 1.0, "per_tensor": 105e-6, "hop": 24e-6, "regroup": 1.38}
    for one in SCORED:
        if "-new-" in one.id:
            assert predicted(one, rival) == pytest.approx(predicted(one), rel=0.035)


@pytest.mark.slow
def test_the_rival_explanation_is_fitted_as_well() -> None:
    rival = fit(SCORED, rival=True)
    assert rival["per_tensor"] == pytest.approx(105e-6, rel=0.02)
    assert all(
        predicted(one, rival) == pytest.approx(one.seconds, rel=0.01)
        for one in SCORED
        if one.use == "fit"
    )


def test_every_row_is_expressed_or_says_why_not() -> None:
    assert len(ROWS) == 19
    assert all(
        row.get("not_expressible") or row["id"].startswith(("checkpoint-engine", "verl"))
        for row in ROWS
    )
