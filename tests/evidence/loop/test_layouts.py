"""The layouts that ship: what the issue of a default list is, and that the reference can run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import twin
from reference.config import load_run
from reference.parallel.mesh import mesh_of
from twin.errors import UsageError
from twin.evidence.loop.layouts import ReferenceLayout, find, shipped
from twin.evidence.loop.trainer import configuration, problems

PACED = find([], "paced")


def test_there_are_sixteen_paced_layouts_on_two_to_four_nodes() -> None:
    assert len(PACED) >= 16
    assert {one.scenario.cluster.nodes for one in PACED} <= {2, 3, 4}
    rates = [one.scenario.cluster.node.nic.bandwidth * 8 for one in PACED]
    assert min(rates) == 100e6
    assert max(rates) == 5e9


def test_names_say_the_mode() -> None:
    for name in shipped():
        (one,) = find([name])
        assert one.mode == next((mode for mode in ("bare", "rl") if name.startswith(mode)), "paced")


@pytest.mark.parametrize("layout", [*PACED, *find([], "bare")], ids=lambda one: one.name)
def test_the_trainer_reads_what_the_plan_says(layout: ReferenceLayout, tmp_path: Path) -> None:
    plan = twin.plan(layout.scenario)
    assert not problems(plan)
    written = tmp_path / "trainer.json"
    written.write_text(json.dumps(configuration(plan, tmp_path, 3, None)))
    run = load_run(written)
    assert run.model == layout.scenario.model
    assert run.memory == layout.scenario.memory
    mesh = mesh_of(run.parallel, layout.scenario.cluster.gpus, run.train.accumulate)
    assert (mesh.data, mesh.spec.expert) == (plan.mesh.data, plan.mesh.expert)
    assert run.train.accumulate == plan.microbatches * plan.mesh.data
    assert sum(run.parallel.layers or ()) == run.model.layers


def test_what_the_reference_does_not_do_is_said_by_field() -> None:
    (layout,) = find(
        ["ep2-1gbps"], sets=["parallel.overlap_shared_experts=true", "parallel.zero=2"]
    )
    found = problems(twin.plan(layout.scenario))
    assert {one.path for one in found} == {"parallel.zero", "parallel.overlap_shared_experts"}
    assert {one.code for one in found} == {"TW371"}


def test_without_links_each_layout_is_taken_once() -> None:
    names = ["pp2-1gbps", "ep2-1gbps"]
    assert len(find([*names, "pp2-1gbps"], shaped=False)) == 2
    rates = {one.scenario.cluster.node.nic.bandwidth for one in find(names, shaped=False)}
    assert len(rates) == 1


def test_an_unknown_layout_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"(?s)TW370.*`pp2-1gbps`"):
        find(["pp2-1gbp"])
