"""Nearest fit: what to change in a plan that does not fit, or cannot run."""

from __future__ import annotations

import json
from functools import cache

import pytest

from twin.answers import nearest
from twin.answers.nearest import (
    MOST_CHANGES,
    MOST_PLANNED,
    MOST_PLAYED,
    Suggestion,
    nearest_fit,
)
from twin.engine import lower, plan, simulate
from twin.loading import load
from twin.planning.compile import fits
from twin.scenario import Scenario

TOO_LARGE = ["parallel.pipeline=2"]
IMPOSSIBLE = ["parallel.pipeline=3"]
NO_SCHEDULE = "parallel.schedule=1f1b"
QUARTER = ["model.layers=14", "cluster.nodes=8", "parallel.pipeline=4"]
"""Of the layers and nodes of Kimi K2 in four chunks per stage."""


def loaded(*changes: str) -> Scenario:
    return load("kimi-k2-256xh800-four-chunks", [*QUARTER, *changes])


@cache
def suggested(*changes: str) -> tuple[Suggestion, ...]:
    return nearest_fit(loaded(*changes))


def as_arguments(overrides: dict[str, str]) -> list[str]:
    return [f"{path}={value}" for path, value in overrides.items()]


@pytest.mark.parametrize(
    "changes",
    [TOO_LARGE, IMPOSSIBLE, pytest.param(["memory.recompute=[]"], marks=pytest.mark.slow)],
    ids=lambda c: c[0],
)
def test_suggestions_load_fit_and_say_what_they_are(changes: list[str]) -> None:
    found = suggested(*changes)
    assert found
    for one in found:
        scenario = loaded(*changes, *as_arguments(dict(one.overrides)))
        assert scenario == one.scenario
        planned = plan(scenario)
        assert planned.memory.fits
        headroom = planned.memory.budget - planned.memory.peak.peak_bytes
        assert one.headroom_bytes == headroom >= 0
        assert 1 <= len(one.overrides) <= MOST_CHANGES


def test_k2_with_half_the_stages_needs_twice_the_expert_ranks_or_nodes() -> None:
    assert not plan(loaded(*TOO_LARGE)).memory.fits
    found = [dict(one.overrides) for one in suggested(*TOO_LARGE)]
    assert {"parallel.expert": "32"} in found
    assert {"parallel.pipeline": "4"} in found


@pytest.mark.parametrize("gpu_memory", [16, 24, 32, 48, 80])
def test_whether_a_plan_fits_is_known_without_it(gpu_memory: int) -> None:
    """Whatever is left open: the split, the policies of stages, or nothing."""
    whole = ["parallel.virtual=1", "parallel.schedule=1f1b"]
    for change in ([], ["memory.by_stage=auto"], [*whole, "parallel.layers=[1, 3, 5, 5]"], whole):
        scenario = loaded(f"cluster.node.gpu.memory={gpu_memory}GiB", *change)
        assert fits(scenario) == plan(scenario).memory.fits


def test_fewest_changes_come_first_then_the_fastest() -> None:
    found = suggested(*TOO_LARGE)
    order = [(len(one.overrides), one.kpis["step_seconds"] or 0.0) for one in found]
    assert order == sorted(order)


def test_no_suggestion_holds_another_one() -> None:
    found = [set(one.overrides.items()) for one in suggested(*IMPOSSIBLE)]
    assert not any(one < other for one in found for other in found)


def test_key_figures_are_simulated() -> None:
    one = suggested(*TOO_LARGE)[0]
    trace = simulate(lower(plan(one.scenario)))
    assert one.kpis["step_seconds"] == trace.step_ns / 1e9


def test_the_same_question_has_the_same_answer() -> None:
    assert nearest_fit(loaded(NO_SCHEDULE)) == suggested(NO_SCHEDULE)


def test_a_schedule_that_cannot_run_gets_one_that_can() -> None:
    found = [dict(one.overrides) for one in suggested(NO_SCHEDULE)]
    assert {"parallel.schedule": "interleaved_1f1b"} in found
    assert {"parallel.virtual": "1"} in found


def test_the_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Scenario] = []

    def counted(scenario: Scenario) -> bool:
        made.append(scenario)
        return fits(scenario)

    monkeypatch.setattr(nearest, "fits", counted)
    found = nearest_fit(loaded("cluster.node.gpu.memory=4GiB"))
    assert found == ()
    assert 0 < len(made) <= MOST_PLANNED
    assert len(suggested(*TOO_LARGE)) <= MOST_PLAYED


def test_suggestions_are_plain_data_and_words() -> None:
    one = suggested(*IMPOSSIBLE)[0]
    assert json.loads(json.dumps(one.to_json()))["overrides"] == {"parallel.pipeline": "4"}
    assert one.words == "--set parallel.pipeline=4"
