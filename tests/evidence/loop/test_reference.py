"""The loop once around: a small layout is predicted, then run on two ranks over a real link."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reference.cluster.namespaces import obstacle
from twin.errors import UsageError
from twin.evidence.loop.layouts import find
from twin.evidence.loop.run import RunOptions, predict_then_run
from twin.evidence.loop.trainer import command, start

SMALL = [
    "train.sequence=32tok",
    "train.global_batch=4seq",
    "train.optimizer=adamw",
    "cluster.node.nic.bandwidth=100Mbps",
]


@pytest.mark.skipif(bool(obstacle()), reason=f"no links of a declared rate: {obstacle()}")
@pytest.mark.slow  # seconds of real transfers: other processes make it late
def test_two_stages_over_a_slow_link_take_as_long_as_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sealed before the run, within 15 %, and what is kept for backwards within 5 %."""
    monkeypatch.setenv("TWIN_SEALS", str(tmp_path / "seals"))
    asked = RunOptions(tmp_path, steps=3, shaped=True)
    layouts = find(["pp2-1gbps"], sets=SMALL)
    (found,) = predict_then_run(layouts, asked)
    assert found.sealed
    assert abs(found.error) < 0.15, found.steps
    predicted, measured = found.kept
    assert measured is not None
    assert abs(predicted / measured - 1) < 0.05
    assert not found.comparison.mismatches
    before = (found.folder / "metrics.jsonl").stat().st_mtime_ns
    (again,) = predict_then_run(layouts, asked)
    assert again.steps == found.steps
    assert (found.folder / "metrics.jsonl").stat().st_mtime_ns == before, "it was not run again"


def test_a_trainer_that_fails_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    (layout,) = find(["pp2-1gbps"])
    wrong = tmp_path / "trainer.json"
    wrong.write_text(json.dumps({"model": "no-such-model"}))
    with pytest.raises(UsageError, match=r"TW373.*exit code 3"):
        start(command(layout.scenario.cluster, wrong, shaped=False), tmp_path / "log.txt")
