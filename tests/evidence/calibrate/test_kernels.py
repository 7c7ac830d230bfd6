"""What the all-to-all of DeepSeek's stack loses beside kernels follows from the traced kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from twin.engine import lower, plan
from twin.engine.program import EXPERT
from twin.loading import load

ROWS = Path(__file__).parents[3] / "scenarios" / "published" / "trace-deepep-h800.yaml"
EXCHANGES = 16


def total_ms(*words: str) -> float:
    rows = YAML(typ="safe").load(ROWS)["measurements"]
    return sum(
        row["metrics"]["total_ms"] for row in rows if any(word in row["id"] for word in words)
    )


def test_the_rate_lost_is_what_the_traced_kernels_take_longer_than_links_alone() -> None:
    scenario = load("deepseek-v3-2048xh800", ["train.routing=balanced"])
    program = lower(plan(scenario))
    passes = program.passes["F", 4], program.passes["B", 4]
    steps = [step for one in passes for step in one if step.stream == EXPERT]
    assert len(steps) == EXCHANGES
    alone = sum(step.alone_ns(program.capacity) - step.duration_ns for step in steps) / 1e6
    measured = total_ms("deepep-dispatch-", "deepep-combine")
    assert scenario.calibration.expert_contention == pytest.approx(1 - alone / measured, abs=0.01)


def test_the_wait_is_that_of_the_kernels_in_which_ranks_meet() -> None:
    scenario = load("deepseek-v3-2048xh800")
    wait = total_ms("notify-dispatch", "cached-notify") / EXCHANGES / 1e3
    assert scenario.calibration.expert_wait == pytest.approx(wait, rel=0.01)
