"""The split of layers where something beside kernels keeps a rank busy."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from twin.engine import lower, plan, simulate
from twin.engine.best_draft import WORTH
from twin.loading import load
from twin.planning.chunks import layers_of
from twin.planning.compile import SplitRanking
from twin.planning.layer_times import KERNELS, Scale
from twin.planning.mesh import lay_out, placements
from twin.planning.stages import Busy

SMALL = """\
schema: 1
name: small
model: {name: m, layers: 8, hidden: 512, vocab: 32000,
  attention: {kind: gqa, heads: 16, kv_heads: 4, head_dim: 64}, ffn: {kind: swiglu, width: 1536}}
cluster: {node: a100-80gb-8gpu-8x200g, nodes: 1, fabric: rail-fat-tree-400g}
parallel: {pipeline: 2, virtual: 2, schedule: {kind: interleaved_1f1b}}
memory: {offload: [activations]}
train: {tokens: 10B, global_batch: 32seq, sequence: 2048tok, optimizer: adamw}
cost: {gpu_hour: 2USD}
"""
"""Narrow layers, which the host issues and PCIe carries more slowly than kernels run; the kernels
of the head weigh as much as several of them."""
EVEN = "parallel.layers=[2, 2, 2, 2]"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL, encoding="utf-8")
    return file


def step_ns(file: Path, *overrides: str) -> int:
    return simulate(lower(plan(load(file, overrides)))).step_ns


@pytest.mark.parametrize("offload", ["[activations]", "[]"])
def test_a_split_is_no_slower_than_the_even_one(small: Path, offload: str) -> None:
    sets = [f"memory.offload={offload}"]
    assert step_ns(small, *sets) <= step_ns(small, *sets, EVEN)


def test_a_faster_gpu_never_lengthens_a_step(small: Path) -> None:
    """With one split not by a nanosecond; nor, with a split of its own, by what splits are chosen
    by: the step, and half a percent for a split that is neither balanced nor even."""
    gpu = load(small).cluster.node.gpu
    fields = [
        f"cluster.node.gpu.memory_bandwidth={speed * gpu.memory_bandwidth}B/s"
        for speed in (1, 1.25, 2, 4)
    ]
    plans = [plan(load(small, [field])) for field in fields]
    splits = [one.layers_per_part for one in plans]
    for split in dict.fromkeys(splits):
        times = [step_ns(small, field, f"parallel.layers={list(split)}") for field in fields]
        assert all(fast <= slow for slow, fast in pairwise(times))
    worth = [
        simulate(lower(one)).step_ns * (1 + WORTH * (split not in SplitRanking(one.scenario).usual))
        for one, split in zip(plans, splits, strict=True)
    ]
    assert all(fast <= slow for slow, fast in pairwise(worth))


def test_zeros_gathers_are_a_part_that_sharding_and_links_make_longer(small: Path) -> None:
    def gathers(*overrides: str) -> float:
        [*_, layer] = layer_times(small, "software=null", *overrides)
        return layer[-1]

    assert gathers("parallel.zero=1") == 0.0 < gathers("parallel.zero=2")
    assert gathers("parallel.zero=2") < gathers("parallel.zero=3")
    narrow = "cluster.node.nvlink.bandwidth=10GB/s"
    assert gathers("parallel.zero=3") < gathers("parallel.zero=3", narrow)


def test_kernels_wait_for_the_exchanges_between_them(small: Path) -> None:
    """Four tensor ranks sum after every block but the head."""
    sets = ["software=null", "parallel.tensor=4", "cluster.node.nvlink.bandwidth=30GB/s"]
    assert step_ns(small, *sets) <= step_ns(small, *sets, EVEN)
    [*_, wide] = layer_times(small, *sets)
    [*_, hidden] = layer_times(small, *sets, "parallel.overlap_tensor=pieces")
    assert wide[3] > hidden[3] == hidden[KERNELS]


def layer_times(file: Path, *overrides: str) -> list[Busy]:
    scenario = load(file, overrides)
    placed = placements(lay_out(scenario), scenario.cluster.fabric.nodes_per_leaf)
    return Scale.of(scenario, placed).weigh(layers_of(scenario)[1:-1])
