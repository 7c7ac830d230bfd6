"""Bounds of time and memory are bounds: no layout is faster, or smaller, than they say."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from twin.engine import lower, simulate
from twin.errors import ScenarioError
from twin.explore.search.bounds import TimeBound
from twin.explore.search.judge import Judge
from twin.explore.search.space import space
from twin.planning import plan
from twin.planning.feasibility import microbatches
from twin.scenario import Scenario
from twin.schedules import SCHEDULES
from twin.schedules.base import looped


@pytest.fixture(scope="module")
def judged(small: Scenario) -> Callable[[int], Judge]:
    """The judge of all layouts on so many nodes."""

    @cache
    def judged(nodes: int) -> Judge:
        judge = Judge(space(small, (nodes,)))
        for _ in judge.all():
            pass
        return judge

    return judged


def sample(judge: Judge, count: int, seed: int):
    found = judge.found.candidates
    return random.Random(seed).sample(found, min(count, len(found)))


@pytest.mark.parametrize(
    "nodes", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow)]
)
def test_no_step_is_shorter_than_its_bound(small, judged, nodes):
    judge = judged(nodes)
    for candidate in sample(judge, 40, nodes):
        scenario = candidate.layout.applied(small)
        step = simulate(lower(plan(scenario)), fidelity="fast").step_ns
        tight = judge.refined(candidate)
        assert candidate.least_ns <= tight.least_ns <= step, candidate.layout.words


@pytest.mark.parametrize("nodes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_no_plan_holds_less_than_its_bound(small, judged, nodes):
    for candidate in sample(judged(nodes), 60, nodes):
        held = plan(candidate.layout.applied(small)).memory.peak.peak_bytes
        assert candidate.least_bytes <= held * (1 + 1e-9), candidate.layout.words


def test_events_are_no_shorter_than_the_bound_either(small, judged):
    judge = judged(2)
    for candidate in sample(judge, 8, 7):
        step = simulate(lower(plan(candidate.layout.applied(small)))).step_ns
        assert judge.refined(candidate).least_ns <= step, candidate.layout.words


def test_the_bound_of_equal_stages_is_the_formula_of_1f1b():
    stages, forward, backward, runs = 4, 3.0, 5.0, 8
    each = np.arange(stages).astype(np.float64)
    bound = TimeBound(
        parts=(),
        chunk_map=looped(stages, 1),
        arrival=each * forward,
        whole=np.full(stages, forward + backward),
        due=np.full(stages, forward + backward),
        tail=each * backward,
        holds=np.zeros((stages, 1)),
        kept=np.zeros(stages),
    )
    # (m + p - 1)(F + B): Narayanan et al. 2021, section 2.2.1.
    assert bound.nanoseconds(runs) == (runs + stages - 1) * (forward + backward)


def test_the_bound_is_close_where_nothing_is_shared(small, judged):
    """Unpaired passes on one node: what is left out is messages, reductions and the update."""
    layout = next(
        one.layout
        for one in judged(1).found.candidates
        if one.layout.schedule == SCHEDULES["1f1b"].model_validate({"kind": "1f1b"})
        and one.layout.pipeline == 2
        and one.layout.tensor == 1
    )
    scenario = layout.applied(small)
    bound = judged(1).bound(layout, scenario)
    step = simulate(lower(plan(scenario)), fidelity="fast").step_ns
    assert bound.nanoseconds(microbatches(scenario)) > 0.7 * step


@pytest.mark.slow
def test_layouts_that_are_refused_cannot_run_or_do_not_fit(small):
    """Of a random sample of all: what is no candidate has a problem, or is too large."""
    found = space(small, (1, 2))
    judge = Judge(found)
    for _ in judge.all():
        pass
    kept = {candidate.layout for candidate in judge.found.candidates}
    every = [
        found.layout(grid, turn, zero, memory)
        for grid in found.grids()
        for turn in found.turns(grid.pipeline)
        for zero in found.zeros(grid.pipeline)
        for memory in found.memory
    ]
    assert len(every) == found.size == judge.found.examined
    assert len(kept) + judge.found.pruned.total() == len(every)
    for layout in random.Random(1).sample(every, 150):
        try:
            fits = plan(layout.applied(small)).memory.fits
        except ScenarioError:
            assert layout not in kept
            continue
        assert layout in kept or not fits, layout.words
