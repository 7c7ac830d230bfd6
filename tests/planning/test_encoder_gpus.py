"""An encoder of images on GPUs of its own: a first stage of another size."""

from __future__ import annotations

from pathlib import Path

import pytest

from twin.answers import ask
from twin.arch.blocks.vision import START
from twin.arch.ops import Op
from twin.errors import ScenarioError
from twin.loading import load
from twin.planning.compile import drafts
from twin.planning.types import Plan
from twin.scenario import Scenario

TEXT = """\
schema: 1
name: images
model: qwen2.5-vl-7b
cluster: {{node: h800-8gpu, nodes: {nodes}, fabric: rail-fat-tree-400g}}
parallel: {{pipeline: 3, schedule: 1f1b, zero: 1}}
train:
  tokens: 100G
  sequence: 4096tok
  global_batch: {batch}seq
  optimizer: adamw
  images: {{patches: 8192, image: 4096, fullest: 1.5, gpus: {gpus}}}
"""


def scenario(folder: Path, gpus: int, *sets: str, language: int = 32) -> Scenario:
    file = folder / "images.yaml"
    nodes = (language + gpus) // 8
    file.write_text(TEXT.format(nodes=nodes, gpus=gpus, batch=4 * language))
    return load(file, sets)


def plan_of(one: Scenario) -> Plan:
    return drafts(one)[0].plan


def patches(plan: Plan) -> int:
    """Rows of the product that reads patches, on the first stage."""
    ops = (item for item in plan.chunks[0].layers[0].items if isinstance(item, Op))
    read = next(op for op in ops if op.name == f"{START}patches")
    assert read.forward.product is not None
    return read.forward.product.rows


def test_as_many_gpus_as_a_stage_has_are_an_encoder_alone_on_it(tmp_path: Path) -> None:
    """Without tensor ranks both words say the same."""
    own = plan_of(scenario(tmp_path, 16))
    plain = "train.images={patches: 8192, image: 4096, fullest: 1.5}"
    other = plan_of(scenario(tmp_path, 16, plain, "parallel.layers=[0,15,13]"))
    assert own.mesh == other.mesh
    assert own.chunks == other.chunks
    assert own.memory == other.memory


@pytest.mark.parametrize("gpus", [8, 16, 64])
def test_images_of_all_replicas_are_dealt_out_over_the_gpus(tmp_path: Path, gpus: int) -> None:
    """16 replicas of 8,192 patches each, and 1.5 times the mean on the fullest GPU."""
    made = plan_of(scenario(tmp_path, gpus))
    assert made.mesh.data == 16
    assert patches(made) == 1.5 * 16 * 8192 / gpus
    assert made.layers_per_part == (0, 15, 13)


def test_tensor_groups_that_cut_the_encoder_share_their_images(tmp_path: Path) -> None:
    sets = ("parallel.tensor=2", "train.images.tensor=cut")
    assert patches(plan_of(scenario(tmp_path, 16, *sets))) == 1.5 * 8 * 8192 * 2 / 16
    assert patches(plan_of(scenario(tmp_path, 16, "parallel.tensor=2"))) == 1.5 * 8 * 8192 / 16


def test_more_gpus_help_until_the_language_model_is_the_slowest_stage(tmp_path: Path) -> None:
    """Per GPU: all of them are paid for."""
    steps: list[float] = []
    for gpus in (8, 16, 32, 64):
        kpis = ask(scenario(tmp_path, gpus)).report.kpis
        seconds, rate = kpis["step_seconds"], kpis["tokens_per_second_per_gpu"]
        assert seconds is not None
        assert rate == pytest.approx(128 * 4096 / seconds / (32 + gpus))
        steps.append(seconds)
    assert steps[0] > 1.2 * steps[1] > 1.2 * steps[2]
    assert steps[3] == pytest.approx(steps[2], rel=0.1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("train.images.gpus=12", "no whole nodes"),
        ("train.images.gpus=48", "leave 0, which 2 does not divide"),
        ("train.images.tensor=shared", "no tensor ranks of the language model"),
        ("cluster.degraded=[{nodes: [0], compute: 0.5}]", "are alike"),
        ("parallel.layers=[2,13,13]", "one stage, before at least one"),
        ("parallel.pipeline=1", "one stage, before at least one"),
        ("parallel.context=5", "leave 32, which 10 does not divide"),
    ],
)
def test_gpus_that_cannot_encode_are_refused(tmp_path: Path, change: str, said: str) -> None:
    with pytest.raises(ScenarioError, match="TW133") as caught:
        drafts(scenario(tmp_path, 16, change))
    assert said in str(caught.value)
