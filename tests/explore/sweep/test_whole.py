"""Sweeps of iterations and of rollouts: points are what `twin run` says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kinds.iteration.iterations import BESIDE, NAME, SMALL, reported
from twin.answers import ask
from twin.answers.executors import PoolChoice
from twin.explore.sweep.grid import Grid, ScenarioSource
from twin.explore.sweep.sweep import Sweep, SweepRequest, sweep
from twin.loading import load

ROLLOUTS = "kimi-k2-rollout-256xh800"
FEW = ("rl.rollout.requests=320", "rl.rollout.nodes=4", "rl.rollout.iterations=2")
NODES = "rl.iteration.rollout_nodes"


def swept(
    axes: dict[str, tuple[Any, ...]],
    *sets: str,
    name: str = NAME,
    few: tuple[str, ...] = SMALL,
    folder: Path | None = None,
) -> Sweep:
    source = ScenarioSource(name, (*few, *sets))
    asked = SweepRequest(load(name, [*few, *sets]), source, Grid(axes), "whole")
    return sweep(asked, pool=PoolChoice(1), folder=folder)


def test_a_point_is_what_run_says_of_the_iteration() -> None:
    found = swept({NODES: (1, 2, 3)}, *BESIDE)
    statuses = [row.outcome.status for row in found.rows]
    assert statuses == ["impossible", "fits", "impossible"], "trainers need 16 of 32 GPUs"
    (middle,) = (row.outcome for row in found.rows if row.outcome.status == "fits")
    assert middle.kpis == reported(*BESIDE).kpis
    tightest = min(one.capacity - one.bytes for one in reported(*BESIDE).fits_of)
    assert middle.headroom_bytes == pytest.approx(tightest)
    assert found.frontier_by == ("iteration_seconds", "cost_usd_per_iteration")
    assert found.frontier == (1,)


def test_a_point_of_rollouts_is_what_run_says_of_them() -> None:
    found = swept({"rl.rollout.nodes": (4, 8)}, name=ROLLOUTS, few=FEW)
    for row, nodes in zip(found.rows, (4, 8), strict=True):
        assert (
            row.outcome.kpis == ask(load(ROLLOUTS, [*FEW, f"rl.rollout.nodes={nodes}"])).report.kpis
        )
    assert found.frontier_by == ("rollout_seconds", "cost_usd_of_rollouts")


def test_where_not_all_write_the_same_tokens_per_second_tell() -> None:
    """The fewest requests are always the quickest, and the cheapest, and no better plan."""
    found = swept({"rl.rollout.requests": (80, 320)}, name=ROLLOUTS, few=FEW)
    few, many = (row.outcome.kpis for row in found.rows)
    assert (few["rollout_seconds"] or 0) < (many["rollout_seconds"] or 0)
    assert found.frontier_by == ("tokens_per_second_per_gpu",) * 2
    assert found.frontier == (1,)


def test_a_point_of_another_kind_is_never_the_best() -> None:
    """Rollouts alone have no figures of an iteration, which is not zero of them."""
    spec = load(NAME, SMALL).rl
    assert spec is not None
    assert spec.iteration is not None
    iteration = spec.iteration.model_dump(mode="json", by_alias=True)
    found = swept({"rl.iteration": (None, iteration)})
    alone, whole = (row.outcome for row in found.rows)
    assert "iteration_seconds" not in alone.kpis
    assert "iteration_seconds" in whole.kpis
    assert found.frontier == (1,)


def test_a_kept_iteration_is_no_answer_to_a_step(tmp_path: Path) -> None:
    axes = {"rl.iteration.optimizer_steps": (1, 2)}
    first = swept(axes, folder=tmp_path)
    again = swept(axes, folder=tmp_path)
    assert (first.counts.cached, again.counts.cached) == (0, 2)
    assert [row.outcome.kpis for row in again.rows] == [row.outcome.kpis for row in first.rows]
    source = ScenarioSource(NAME, SMALL)
    asked = SweepRequest(load(NAME, SMALL), source, Grid(axes))
    steps = sweep(asked, pool=PoolChoice(1), folder=tmp_path)
    assert steps.counts.cached == 0
    assert all("step_seconds" in row.outcome.kpis for row in steps.rows)


def test_a_point_of_a_weight_update_is_what_run_says_of_it() -> None:
    name, axis = "kimi-k2-weight-update-16xh20", "weight_update.bucket"
    found = swept({axis: ("1GiB", "8GiB")}, name=name, few=())
    for row, bucket in zip(found.rows, ("1GiB", "8GiB"), strict=True):
        assert row.outcome.kpis == ask(load(name, [f"{axis}={bucket}"])).report.kpis
        assert row.outcome.status == "fits"
    assert found.frontier_by == ("update_seconds", "gpu_hours")
    assert found.frontier == (1,)


def test_a_training_step_among_other_work_is_refused() -> None:
    found = swept({"rl": (None,)}, name=ROLLOUTS, few=())
    (row,) = found.rows
    assert (row.outcome.status, row.outcome.code) == ("impossible", "TW185")
