"""What would make a plan better: equal to trying every edit, and a pair never worse than its
halves."""

from dataclasses import replace
from pathlib import Path

import pytest

import twin
from twin.answers.executors import PoolChoice
from twin.answers.nearest import document, replaced
from twin.errors import ScenarioError
from twin.explore.search.edits import Edit, edits, rank_orders
from twin.explore.search.improve import improve, improving, pairs
from twin.explore.search.improvement import LEAST, Improvement, Tried
from twin.interop.importing.megatron.run import PIPELINE_BEFORE_DATA
from twin.loading import load_any
from twin.scenario import Scenario


@pytest.fixture(scope="module")
def found(small: Scenario, points: Path) -> Improvement:
    return improve(small, pool=PoolChoice(jobs=1), folder=points, seconds=600)


def step(scenario: Scenario) -> float | None:
    """Nanoseconds of a step by events; None where the plan cannot run or does not fit."""
    try:
        plan = twin.plan(scenario)
    except ScenarioError:
        return None
    return twin.simulate(twin.lower(plan)).step_ns if plan.memory.fits else None


def test_the_best_edit_is_that_of_trying_all(small: Scenario, found: Improvement) -> None:
    every = {edit.words: step(replaced(document(small), edit.overrides)) for edit in edits(small)}
    fit = {words: ns for words, ns in every.items() if ns is not None}
    assert {one.edit.words: one.step_ns for one in found.tried} == fit
    assert found.singles[0].step_ns == min(fit.values())
    assert found.impossible + found.too_large == len(every) - len(fit)
    assert found.usual.step_ns == step(small)


def test_what_promises_most_is_tried_first(small: Scenario) -> None:
    """The best edit is among the first quarter of those that are answered."""
    known = [*improving(small, pool=PoolChoice(jobs=1), folder=None)]
    every = len([*edits(small)])
    first = next(n for n, one in enumerate(known, 1) if one.best.edit == known[-1].singles[0].edit)
    assert first <= every / 4


def test_a_pair_is_better_than_both_halves_and_fits(small: Scenario, found: Improvement) -> None:
    pair = found.pair
    assert pair is not None
    assert pair.step_ns <= (1 - LEAST) * found.singles[0].step_ns
    assert step(replaced(document(small), pair.edit.overrides)) == pair.step_ns
    assert found.offered[0] is pair
    worse = replace(pair, outcome=found.singles[0].outcome)
    assert replace(found, pairs=(worse,)).pair is None


def test_edits_of_one_field_or_that_contradict_are_no_pair() -> None:
    two, four = (Edit(("chunks per stage",), {"parallel.virtual": n}) for n in (2, 4))
    order = Edit(("schedule",), {"parallel.schedule": {"kind": "1f1b"}, "parallel.virtual": 1})
    assert two.joined(four) is None
    assert two.joined(order) is None
    memory = Edit(("offload",), {"memory.offload": []})
    both = two.joined(memory)
    assert both is not None
    assert both.overrides == {"parallel.virtual": 2, "memory.offload": []}


def test_nothing_better_is_said(found: Improvement) -> None:
    alone = replace(found, tried=found.tried[-1:], pairs=(), milestones=())
    assert not alone.offered
    assert alone.sentences[0] == "No plan is 0.5 % faster."


def test_each_step_of_the_search_begins_with_the_best_before(
    small: Scenario, found: Improvement
) -> None:
    names = ["as written", "single edits", "pairs", "split of layers", "memory by stage"]
    assert [one.name for one in found.milestones] == names
    steps = [one.best.step_ns for one in found.milestones]
    assert steps == sorted(steps, reverse=True)
    assert found.best.step_ns == steps[-1]
    assert step(replaced(document(small), found.best.edit.overrides)) == steps[-1]


def test_a_stopped_search_says_what_it_knows(small: Scenario) -> None:
    states = list(improving(small, pool=PoolChoice(jobs=1), stop=lambda: True))
    assert states[-1].now is None
    assert states[-1].usual.status == "fits"
    assert len(states[-1].tried) < 3


def test_a_search_that_is_out_of_time_tries_no_more(small: Scenario) -> None:
    """The plan as it is gets its answer, and every edit is counted."""
    late = improve(small, pool=PoolChoice(jobs=1), seconds=1e-9)
    assert late.usual.step_ns == step(small)
    counted = len(late.tried) + late.too_large + late.impossible + late.untried
    assert counted == len(list(edits(small)))
    assert late.untried > 0
    assert [one.name for one in late.milestones] == ["as written", "single edits"]
    assert f"{late.untried} edits and pairs were not tried" in " ".join(late.sentences)


@pytest.mark.parametrize("leaves", [False, True])
def test_orders_of_axes_place_groups_otherwise(leaves: bool) -> None:
    """Two stages of two replicas on two nodes of two GPUs, or under two leaves of two GPUs.
    In the usual order a stage is a node, or a leaf, and messages cross; with stages first replicas
    do. Nothing else is possible. Under leaves with a quarter of the bandwidth above, who crosses
    waits: gradients of a batch are more bytes than its few messages, so the usual order wins."""
    nodes = ["cluster.nodes=4", "cluster.node.gpus=1"] if leaves else ["cluster.node.gpus=2"]
    wires = [f"nodes_per_leaf={2 if leaves else 1}", f"oversubscription={4 if leaves else 1}"]
    sets = ["cluster.nodes=2", *nodes, *(f"cluster.fabric.{one}" for one in wires)]
    model = ["model.layers=4", "model.hidden=1024", "train.global_batch=8seq", "software=null"]
    layout = ["parallel.pipeline=2", "parallel.tensor=1", "parallel.virtual=1"]
    scenario = load_any("gpt-175b-64xa100-full", [*sets, *model, *layout, "parallel.schedule=1f1b"])
    assert isinstance(scenario, Scenario)
    (order,) = rank_orders(scenario)
    assert order == PIPELINE_BEFORE_DATA
    made = replaced(document(scenario), {"parallel.order": list(order)})
    usual, other = twin.plan(scenario).placements, twin.plan(made).placements
    together = [
        one.in_one_pod for plan in (usual, other) for one in (plan["data"], plan["pipeline"])
    ]
    assert together == [True, False, False, True]
    now, then = step(scenario), step(made)
    assert now is not None
    assert then is not None
    assert not leaves or now < then


def test_edits_are_those_that_the_software_runs() -> None:
    scenario = load_any("gpt-175b-64xa100-full", ["software=megatron"])
    assert isinstance(scenario, Scenario)
    schedules = {
        one.overrides["parallel.schedule"]["kind"]
        for one in edits(scenario)
        if "parallel.schedule" in one.overrides
    }
    assert schedules <= {"1f1b", "interleaved_1f1b"}


def test_stages_that_choose_take_part_in_pairs_that_take_their_memory(found: Improvement) -> None:
    """By itself the edit fills the memory; beside another that needs some, stages choose anew."""
    stages = Edit(("memory by stage",), {"memory.by_stage": "auto"})
    assert stages.words in {edit.words for edit in edits(found.scenario)}
    full = replace(found.tried[0].outcome, headroom_bytes=0.0)
    larger = replace(full, headroom_bytes=(found.usual.headroom_bytes or 0.0) / 2)
    other = Edit(("chunks per stage",), {"parallel.virtual": 2})
    made = replace(found, tried=(Tried(stages, full), Tried(other, larger)))
    assert [pair.fields for pair in pairs(made)] == [("memory by stage", "chunks per stage")]
    same = Edit(("offload",), {"memory.offload": []})
    assert not pairs(replace(made, tried=(Tried(same, full), Tried(other, larger))))
