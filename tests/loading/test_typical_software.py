"""The software of a scenario that names none: the typical stack of its layout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import SMALL
from twin.errors import DEFAULT
from twin.loading import catalog_parts, load, load_part, resolve, scenario_hash
from twin.loading.files import find_scenario
from twin.loading.typical_software import TUNED, under_tuned
from twin.scenario import Scenario

UNSET = SMALL.replace("software: null\n", "").replace("calibration: a100-megatron\n", "")
SHARDED = ["parallel={pipeline: 1, tensor: 1, sequence_parallel: false, zero: 3}"]
SHARDED += ["train.global_batch=16seq"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(UNSET)
    return path


def named(scenario: Scenario) -> str | None:
    return scenario.software and scenario.software.name


@pytest.mark.parametrize(
    ("sets", "stack", "profile"),
    [
        ([], "megatron-core", "a100-megatron"),
        (SHARDED, "fsdp2", "a100-torchtitan"),
        ([*SHARDED, "parallel.zero=2"], "megatron-core", "a100-megatron"),
        ([*SHARDED, "parallel.tensor=2"], "megatron-core", "a100-megatron"),
        ([*SHARDED, "parallel.context=2"], "fsdp2", "a100-torchtitan"),
        (["cluster.node=h20-8gpu"], "megatron-core", "h20-hopper-bf16"),
    ],
)
def test_a_layout_that_shards_everything_gets_fsdp2_and_others_megatron_core(
    file: Path, sets: list[str], stack: str, profile: str
) -> None:
    found = load(file, sets)
    assert (named(found), found.calibration.name) == (stack, profile)
    assert found.software_assumed
    assert found.origin("software") == DEFAULT


@pytest.mark.parametrize("name", ["megatron-core", "null", "in-house"])
def test_software_that_is_written_stays(file: Path, name: str) -> None:
    found = load(file, [f"software={name}"])
    assert named(found) == (None if name == "null" else name)
    assert not found.software_assumed


def test_the_typical_stack_is_that_of_the_catalog_and_resolves_to_itself(
    file: Path, tmp_path: Path
) -> None:
    found, chosen = load(file), load(file, ["software=megatron-core"])
    assert scenario_hash(found) == scenario_hash(chosen)
    again = tmp_path / "again.yaml"
    again.write_text(resolve(found))
    assert scenario_hash(load(again)) == scenario_hash(found)
    line = next(one for one in resolve(found).splitlines() if "  name: megatron-core" in one)
    assert "# default: scenarios/catalog/software/megatron-core.yaml" in line


def test_gpus_that_the_catalog_lacks_have_none(file: Path) -> None:
    assert named(load(file, ["cluster.node.gpu.name=stand-in"])) is None


def test_rollouts_alone_have_none_but_an_iteration_trains(tmp_path: Path) -> None:
    kimi = find_scenario("kimi-k2-256xh800").read_text()
    file = tmp_path / "kimi.yaml"
    file.write_text("\n".join(one for one in kimi.splitlines() if "software:" not in one))
    lengths = "prompt: {kind: constant, each: 99}, written: {kind: constant, each: 9}"
    rollout = f"rollout: {{engine: deepep-32gpu, requests: 64, {lengths}}}"
    update = "precision: fp8, replica: {gpus: 32}, free_memory: 24GiB, bucket: 8GiB"
    update = f"update: {{{update}, updater: checkpoint-engine-vllm}}"
    iteration = f"iteration: {{mode: colocated, optimizer_steps: 1, {update}}}"
    assert named(load(file, [f"rl={{{rollout}}}"])) is None
    assert named(load(file, [f"rl={{{rollout}, {iteration}}}"])) == "megatron-core"


def test_a_phase_keeps_that_the_software_is_assumed(file: Path) -> None:
    run = load(file, ["phases=[{name: all, tokens: 1T}]"])
    assert run.phase(0).software_assumed


def test_every_typical_stack_has_a_tuned_counterpart_with_its_kernels(file: Path) -> None:
    for stack, tuned in TUNED.items():
        assert {stack, tuned} <= set(catalog_parts("software"))
        assert load_part("software", tuned).spec.host is not None
    found = under_tuned(load(file))
    assert found is not None
    assert (named(found), found.calibration.name) == ("megatron-core-tuned", "a100-megatron")
    sharded = [*SHARDED, "cluster.node=h100-8gpu", "cluster.fabric=rail-fat-tree-400g"]
    found = under_tuned(load(file, sharded))
    assert found is not None
    assert (named(found), found.calibration.name) == ("torchtitan", "h100-torchtitan")
    found = under_tuned(load(file, [*sharded, "calibration=h100-nemo"]))
    assert found is not None
    assert found.calibration.name == "h100-nemo"
