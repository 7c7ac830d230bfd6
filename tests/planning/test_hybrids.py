"""Plans of hybrids: what their mixers ask of a layout, and what a warning says of their speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from twin.errors import ScenarioError
from twin.loading import load
from twin.planning.compile import drafts
from twin.planning.feasibility import problems
from twin.planning.types import Plan
from twin.scenario import Scenario

TEXT = """\
schema: 1
name: hybrid
model: {model}
cluster: {{node: h800-8gpu, nodes: 8, fabric: rail-fat-tree-400g}}
parallel: {{expert: 8, tensor: 2, pipeline: 2, schedule: 1f1b}}
train: {{tokens: 1T, sequence: 4096tok, global_batch: 256seq, optimizer: adamw}}
"""


def scenario(folder: Path, model: str = "kimi-linear-48b-a3b", *sets: str) -> Scenario:
    file = folder / "hybrid.yaml"
    file.write_text(TEXT.format(model=model))
    return load(file, sets)


def plan_of(one: Scenario) -> Plan:
    return drafts(one)[0].plan


@pytest.mark.parametrize(
    ("model", "sets", "said"),
    [
        ("kimi-linear-48b-a3b", ("parallel.context=32",), "does not divide num_heads=32"),
        ("nemotron-3-nano-30b-a3b", ("parallel.tensor=16",), "does not divide groups=8"),
    ],
)
def test_ranks_have_to_divide_the_heads_of_a_mixer(
    tmp_path: Path, model: str, sets: tuple[str, ...], said: str
) -> None:
    found = problems(scenario(tmp_path, model, *sets))
    assert any(one.code == "TW106" and said in one.message for one in found)


@pytest.mark.parametrize(
    ("entry", "tensor", "code", "said"),
    [
        ("attention@24x6+moe", 16, "TW106", "does not divide heads=24"),
        ("attention@36x6+moe", 4, "TW106", "neither divides kv_heads=6 nor is a multiple of it"),
        ("attention+dense@1000", 16, "TW107", "does not divide ffn.width=1000"),
        ("attention@16x5+moe", 2, "TW110", "kv_heads=5 does not divide heads=16"),
    ],
)
def test_degrees_and_groups_are_judged_by_every_layer(
    tmp_path: Path, entry: str, tensor: int, code: str, said: str
) -> None:
    sets = (f"model.pattern=[{entry}, attention+moe]", f"parallel.tensor={tensor}")
    found = problems(scenario(tmp_path, "qwen3-30b-a3b", *sets))
    assert any(one.code == code and said in one.message for one in found)


def told_of_scans(made: Plan) -> str:
    """The message on the assumed speed of scans, if there is one."""
    return "".join(one.message for one in made.warnings if one.code == "assumed-scans")


def test_a_hybrid_is_told_what_the_assumed_speed_of_its_scans_is_worth(tmp_path: Path) -> None:
    """More where the mixer has more layers; nothing where there is none."""
    shares: list[float] = []
    for pattern in ("[kda+moe]", "[kda+moe, attention+moe]"):
        made = plan_of(scenario(tmp_path, "kimi-linear-48b-a3b", f"model.pattern={pattern}"))
        shares.append(float(told_of_scans(made).rpartition("kernels ")[2].split(" %")[0]))
    assert shares[0] > 1.5 * shares[1] > 0
    assert not told_of_scans(plan_of(scenario(tmp_path, "qwen3-30b-a3b")))


def test_state_space_blocks_are_slower_until_a_profile_knows_them(tmp_path: Path) -> None:
    assumed = plan_of(scenario(tmp_path, "nemotron-3-nano-30b-a3b"))
    assert "0.39 of the roofline forward and 0.17 backward" in told_of_scans(assumed)
    own = ("calibration.scan_forward=0.3", "calibration.scan_backward=0.2")
    known = plan_of(scenario(tmp_path, "nemotron-3-nano-30b-a3b", *own))
    assert not told_of_scans(known)


def test_a_pattern_that_names_no_block_is_told_at_its_line(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"TW017 `mamba2` names no blocks"):
        scenario(tmp_path, "kimi-linear-48b-a3b", "model.pattern=[mamba2]")
