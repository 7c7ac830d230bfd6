"""What choosing a plan has played is simulated: nothing twice, and nothing of another plan."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

import pytest

from twin.engine import handed, lower, plan, simulate
from twin.engine.best_draft import _best
from twin.engine.trace import Trace
from twin.loading import load
from twin.planning.types import Plan
from twin.scenario import Scenario

SIMULATE = import_module("twin.engine.simulate")


@pytest.fixture
def scenario() -> Scenario:
    """Its split is left out, so several are played."""
    _best.cache_clear()
    return load("kimi-k2-256xh800")


def said(trace: Trace) -> list[Any]:
    """All that a trace says, in plain data."""
    of = {one.name: getattr(trace, one.name) for one in fields(trace) if one.name != "spans"}
    columns = [getattr(trace.spans, one.name).tolist() for one in fields(trace.spans)]
    return [of, columns]


def refused(*_: object) -> None:
    raise AssertionError("it is played again")


def test_a_chosen_plan_is_played_once(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    own = plan(scenario)
    with monkeypatch.context() as nobody:
        nobody.setattr(SIMULATE, "play", refused)
        told = simulate(lower(own))
    assert said(simulate(lower(own))) == said(told), "played when it was asked about"


def test_the_plan_of_another_scenario_is_played_itself(scenario: Scenario) -> None:
    slower = load("kimi-k2-256xh800", ["cluster.node.gpu.memory_bandwidth=2TB/s"])
    plans = [plan(slower), plan(scenario)][::-1]  # what is held is of the last
    told = [said(simulate(lower(one))) for one in plans]
    handed._HELD.clear()
    assert told == [said(simulate(lower(one))) for one in plans]


def test_an_equal_scenario_has_its_own_plan(scenario: Scenario) -> None:
    same = load("kimi-k2-256xh800")
    own, other = plan(scenario), plan(same)
    assert other.scenario is same
    assert other.layers_per_part == own.layers_per_part
    assert said(simulate(lower(other))) == said(simulate(lower(own)))


def test_unfolded_ranks_and_whole_steps_are_lowered_and_played(scenario: Scenario) -> None:
    own: Plan = plan(scenario)
    assert len(lower(own, "group").roles) > len(lower(own).roles)
    whole = simulate(lower(own), extrapolate=False)
    assert whole.repeats == 1
    assert whole.step_ns == simulate(lower(own)).step_ns


def test_a_slow_gpu_does_not_move_layers() -> None:
    """What it costs is asked of the split of equal GPUs."""
    slow = "cluster.degraded=[{gpus: [17], compute: 0.9}]"
    equal, uneven = (plan(load("gpt-175b-64xa100-full", sets)) for sets in ([], [slow]))
    assert uneven.layers_per_part == equal.layers_per_part
