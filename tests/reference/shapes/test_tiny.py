"""A small model on 64 ranks that are not there: what the trainer's code counts is what the plan
says."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from reference.shapes.__main__ import main
from reference.shapes.count import Counts, count
from reference.shapes.count import flop as flop_of
from tests.reference.shapes.plans import collectives, flop, parameters, planned, run_of
from twin.planning.types import Plan

RANKS = 64
SMALL = (
    "model=kimi-k2-tiny",
    "cluster.nodes=8",
    "parallel.pipeline=4",
    "parallel.virtual=2",
    "parallel.expert=4",
    "train.sequence=64tok",
)
LOG = "metrics"
"""What the ranks add up for the trainer's log, which no plan speaks of."""
VARIANTS: dict[str, tuple[str, ...]] = {
    "kimi k2": ("train.global_batch=64seq",),
    "1f1b, all again": (
        "train.global_batch=64seq",
        "parallel.virtual=1",
        "parallel.schedule={kind: 1f1b}",
        "memory.recompute=[full]",
        "memory.fp8_store=[]",
        "memory.offload=[]",
    ),
}


@cache
def small(variant: str) -> Plan:
    return planned(*SMALL, *VARIANTS[variant])


@cache
def counted(variant: str, stage: int) -> Counts:
    plan = small(variant)
    return count(run_of(plan), stage * plan.mesh.data, RANKS)


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("variant", VARIANTS)
def test_collectives_and_messages_are_equal_in_count_and_bytes(variant: str, stage: int) -> None:
    found = {
        (one.name, one.group): (one.count, one.bytes)
        for one in counted(variant, stage).collectives
        if one.name != LOG
    }
    expected = collectives(small(variant), stage)
    norm = "gradient_norm", "world"
    # Loss, squares and whether to stop: three float64, of which the plan says that they are few.
    assert found.pop(norm) == (1, 24)
    assert expected.pop(norm)[0] == 1
    assert found == expected


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("variant", VARIANTS)
def test_flop_of_each_pass_are_equal(variant: str, stage: int) -> None:
    plan = small(variant)
    made = {(one["kind"], one["chunk"]): one["flop"] for one in flop_of(counted(variant, stage))}
    made.pop(("optimizer", -1))
    expected = {
        (kind, chunk.index): number
        for chunk in plan.chunks
        if chunk.stage == stage
        for kind, number in flop(plan, chunk).items()
        if number
    }
    assert made == expected


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_have_the_same_sizes(variant: str) -> None:
    plan, found = small(variant), counted(variant, 1)
    own = [chunk for chunk in plan.chunks if chunk.stage == 1]
    assert Counter(found.parameters.values()) == sum(
        (parameters(plan, chunk) for chunk in own), Counter()
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_stands_between_steps_is_equal_but_for_buffers_and_alignment(variant: str) -> None:
    """Buffers are fp32 here, and counted as bf16 by the plan. Regions of parameters begin at
    multiples of 32 numbers and are filled up to equal shards of 16 ranks."""
    found = counted(variant, 1).standing
    expected = small(variant).memory.stages[1].categories
    for name in ("gradients", "optimizer_dense", "optimizer_expert"):
        assert found[name].host == 0
        assert found[name].device == pytest.approx(expected[name], rel=1e-3), name
        assert found[name].device >= expected[name]
    assert found["parameters"].device == pytest.approx(expected["parameters"], rel=1e-3)


def test_the_command_writes_what_was_counted(tmp_path: Path) -> None:
    config, output = tmp_path / "run.yaml", tmp_path / "counts.json"
    parallel = "{pipeline: 2, expert: 2, layers: [2, 0]}"
    train = "{steps: 1, sequence: 16, micro_batch: 1, accumulate: 8}"
    lines = ("model: kimi-k2-nano", f"train: {train}", f"parallel: {parallel}")
    config.write_text("\n".join(lines), encoding="utf-8")
    words = [str(config), "--ranks", "8", "--stages", "all", "--output", str(output)]
    assert main([*words, "--set", "model.layers=2"]) == 0
    told = json.loads(output.read_text(encoding="utf-8"))
    assert [one["rank"] for one in told["counted"]] == [0, 4]
    first, last = told["counted"]
    assert {one["name"] for one in first["collectives"]} >= {"dispatch", "activations"}
    assert {one["name"] for one in last["collectives"]} >= {"gradients", "gradient_norm"}
    categories = first["fullest"]["categories"]
    assert sum(categories.values()) == first["fullest"]["bytes"]
    standing = {name: one["device"] for name, one in first["standing"].items()}
    assert categories["gradients"] == standing["gradients"]


def test_a_file_that_cannot_be_written_is_told_before_anything_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("reference.shapes.count.count", lambda *_: pytest.fail("counted"))
    assert main(["nano", "--ranks", "8", "--output", "/dev/null/all.json"]) == 2
    assert "TW364" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--ranks", "8", "--rank", "8"], "TW360"),
        (["--ranks", "8", "--set", "optimizer.qk_clip.variant=adaptive"], "TW361"),
        (["--ranks", "6", "--set", "parallel.expert=3", "--set", "train.sequence=8"], "TW362"),
        (["--ranks", "8", "--stages", "first"], "TW363"),
        (["--ranks", "7", "--set", "parallel.pipeline=2"], "TW290"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_cannot_be_counted_is_said(
    words: list[str], code: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "run.yaml"
    train = "{steps: 1, sequence: 8, micro_batch: 1, accumulate: 168}"
    config.write_text(f"model: kimi-k2-nano\ntrain: {train}\n", encoding="utf-8")
    narrow = ["--set", "model.layers=1", "--set", "model.moe.experts=6"]
    assert main([str(config), *narrow, *words]) == 2
    assert code in capsys.readouterr().err
