"""Splits by the light model of a step: against every split there is, and against the engine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planning.test_layer_times import SMALL
from twin.engine import lower, plan, simulate
from twin.loading import load
from twin.planning.layer_times import GATHERED, HOST, PASSES, SHARDS, STOPS, WAITED
from twin.planning.split_search import search
from twin.planning.stages import evenly
from twin.planning.step_length import LayerCost, StepCosts, StepLength
from twin.schedules import SCHEDULES
from twin.schedules.base import Schedule

NEAR = 1.005
"""How much longer than the best split's a step of a small case may be; of 200 drawn at random, all
were the best."""
SHAPES = [
    ("1f1b", 2, 1),
    ("1f1b", 3, 1),
    ("1f1b", 4, 1),
    ("gpipe", 3, 1),
    ("zb_h1", 3, 1),
    ("interleaved_1f1b", 2, 2),
    ("interleaved_1f1b", 2, 3),
]


def schedule_of(kind: str) -> Schedule:
    return SCHEDULES[kind].model_validate({"kind": kind})


def cost(
    forward: float,
    *,
    closes: float = 0.0,
    host: float = 0.0,
    gathers: float = 0.0,
    stops: bool = False,
) -> LayerCost:
    """A layer whose backward takes twice its forward (ms)."""
    times = {"F": forward, "B": 2 * forward, "I": forward, "W": forward}
    rows: list[tuple[float, ...]] = []
    for kind in PASSES:
        row = [0.0] * (STOPS + 1)
        row[WAITED], row[HOST] = times[kind] / 1e3, host / 1e3
        row[STOPS] = row[HOST] * stops
        row[GATHERED] = row[SHARDS] = 0.0 if kind == "W" else gathers / 1e3
        rows.append(tuple(row))
    return LayerCost(tuple(rows), 0.0, 0.0, closes / 1e3)


def costs_of(layers: list[float], before: float, behind: float, **more: Any) -> StepCosts:
    return StepCosts(
        before=cost(before),
        layers=tuple(cost(one, **more) for one in layers),
        behind=(cost(behind),),
        message=0.0,
        each_pass=0.0,
        buckets=(False, False),
    )


def every_split(layers: int, chunks: int) -> Iterator[tuple[int, ...]]:
    for cuts in combinations_with_replacement(range(layers + 1), chunks - 1):
        yield tuple(b - a for a, b in pairwise((0, *cuts, layers)))


@settings(max_examples=40)
@given(
    shape=st.sampled_from(SHAPES),
    rounds=st.integers(1, 4),
    dense=st.integers(0, 2),
    layers=st.integers(3, 8),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 3)),
    closes=st.sampled_from([0.0, 4.0]),
)
def test_the_search_finds_what_exhaustion_finds(shape, rounds, dense, layers, ends, closes) -> None:
    kind, stages, per_stage = shape
    times = [0.4] * min(dense, layers - 1) + [1.0] * (layers - min(dense, layers - 1))
    costs = costs_of(times, *ends, closes=closes)
    step = StepLength([costs], schedule_of(kind), (stages, per_stage, rounds * stages))
    even = next(evenly(layers, stages * per_stage))
    found, length, of_even = search(step, even)
    best = min(step(list(every_split(layers, stages * per_stage))))
    assert step([found, even]) == [length, of_even]
    assert length <= NEAR * best


def length(costs: StepCosts, split: tuple[int, ...], microbatches: int, kind: str = "1f1b") -> int:
    """Milliseconds of a step."""
    shape = len(split), 1, microbatches
    return StepLength([costs], schedule_of(kind), shape)([split])[0] // 1_000_000


def test_steps_that_are_counted_by_hand() -> None:
    """Two stages of two layers: a forward of 2 ms, a backward of 4. The second stage is 6 ms later
    with its first backward; then either stage takes 6 ms for each micro-batch."""
    costs = costs_of([1.0] * 4, 0.0, 0.0)
    assert length(costs, (2, 2), 1) == 2 + 2 + 4 + 4
    assert length(costs, (2, 2), 3) == 12 + 2 * 6
    assert length(costs, (1, 3), 3) == 12 + 2 * 9
    assert length(costs, (2, 2), 3, "gpipe") == 12 + 2 * 2 + 2 * 4
    # The update of two layers closes the step.
    assert length(costs_of([1.0] * 4, 0.0, 0.0, closes=5.0), (2, 2), 3) == 24 + 10


def test_gathers_hide_beside_the_layer_before() -> None:
    """Of a pass through three layers the first gather is waited for, the others are hidden; where
    gathers take longer than kernels, the last kernels are what is not hidden."""
    costs = costs_of([2.0] * 3, 0.0, 0.0, gathers=1.0)
    assert length(costs, (3, 0), 1) == (1 + 6) + (1 + 12)
    slow = costs_of([2.0] * 3, 0.0, 0.0, gathers=9.0)
    assert length(slow, (3, 0), 1) == (27 + 2) + (27 + 4)


def test_the_host_works_one_turn_ahead() -> None:
    """Its 3 ms for each pass through a layer count where kernels take less; during the wait for the
    first message the second stage's host has issued its first forward, and then its backward."""
    costs = costs_of([1.0] * 2, 0.0, 0.0, host=3.0)
    assert length(costs, (1, 1), 1) == 3 + 1 + 2 + 2


def test_a_host_that_waits_for_the_device_does_not_work_ahead() -> None:
    """Each of four passes in a row takes the host's 3 ms."""
    costs = costs_of([1.0] * 2, 0.0, 0.0, host=3.0, stops=True)
    assert length(costs, (1, 1), 1) == 3 + 3 + 3 + 3


def test_a_longer_step_repeats_its_period() -> None:
    layers = [1.0] * 12
    costs = costs_of(layers, 0.2, 1.3)
    shape = 4, 3, 400
    step = StepLength([costs], schedule_of("interleaved_1f1b"), shape)
    assert len(step.steps) == 2
    step_of = [StepLength([costs], schedule_of("interleaved_1f1b"), (4, 3, n)) for n in (60, 64)]
    (before,), (after,) = (one([(1,) * 12]) for one in step_of)
    assert step([(1,) * 12])[0] == pytest.approx(after + 84 * (after - before), rel=1e-3)


_MEMORY = "cluster.node.gpu.memory_bandwidth"
COPIES = """\
model: {name: m, layers: 5, hidden: 8192, vocab: 128256, ffn: {kind: swiglu, width: 24576},
  attention: {kind: gqa, heads: 16, kv_heads: 8, head_dim: 64}}
cluster: {node: h800-8gpu, nodes: 1, fabric: rail-fat-tree-400g}
parallel: {tensor: 2, context: 2, pipeline: 2, zero: 2, micro_batch: 2, overlap_tensor: bulk,
  sequence_parallel: false, overlap_grad_reduce: false, schedule: {kind: zb_h1}}
memory: {offload: [activations]}
train: {tokens: 10B, global_batch: 24seq, sequence: 2048tok, optimizer: muon}
"""
GATHERS = """\
model: {name: m, layers: 7, hidden: 4096, vocab: 32000, ffn: {kind: swiglu, width: 12288},
  attention: {kind: mla, heads: 16, q_lora_rank: 128, kv_lora_rank: 64, qk_nope_head_dim: 64,
    qk_rope_head_dim: 32, v_head_dim: 64}, moe: {experts: 64, top_k: 4, width: 1024,
    shared_experts: 0, first_dense_layers: 2}}
cluster: {node: gb200-nvl72, nodes: 1, fabric: rail-fat-tree-400g}
parallel: {context: 2, pipeline: 4, zero: 3, micro_batch: 2, dispatcher: deepep,
  sequence_parallel: false, overlap_grad_reduce: false, schedule: {kind: zb_h2}}
memory: {recompute: [moe_down], offload: [optimizer]}
train: {tokens: 10B, global_batch: 288seq, sequence: 8192tok, optimizer: muon}
"""
SUMS = """\
model: {name: m, layers: 16, hidden: 2048, vocab: 128256, ffn: {kind: swiglu, width: 6144},
  attention: {kind: gqa, heads: 16, kv_heads: 8, head_dim: 64}}
cluster: {node: b200-8gpu, nodes: 4, fabric: rail-fat-tree-400g}
parallel: {tensor: 4, pipeline: 4, virtual: 2, zero: 1, micro_batch: 2, overlap_tensor: none,
  sequence_parallel: false, schedule: {kind: interleaved_1f1b}}
memory: {}
train: {tokens: 10B, global_batch: 48seq, sequence: 512tok, optimizer: adamw}
"""
"""Where a split by kernels, by busy parts, or without sums over tensor ranks got 16, 42 and 8 %
longer on a faster GPU."""


@pytest.mark.parametrize("text", [COPIES, GATHERS, SUMS], ids=["copies", "gathers", "sums"])
def test_a_faster_gpu_with_a_split_of_its_own_is_no_slower(tmp_path: Path, text: str) -> None:
    file = tmp_path / "layout.yaml"
    file.write_text(f"schema: 1\nname: layout\n{text}cost: {{gpu_hour: 2USD}}\n", encoding="utf-8")
    bandwidth = load(file).cluster.node.gpu.memory_bandwidth
    plain, fast = (
        simulate(lower(plan(load(file, ["software=null", f"{_MEMORY}={speed}B/s"])))).step_ns
        for speed in (bandwidth, 1.5 * bandwidth)
    )
    assert fast <= 1.01 * plain


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_the_split_of_a_scenario_is_no_slower_than_the_even_one(tmp_path: Path, zero: int) -> None:
    """By events. Kernels bind, of wide layers on many micro-batches."""
    file = tmp_path / "small.yaml"
    file.write_text(SMALL, encoding="utf-8")
    sets = ["model.hidden=4096", "memory.offload=[]", f"parallel.zero={zero}", "software=null"]
    found, even = (
        simulate(lower(plan(load(file, [*sets, *more])))).step_ns
        for more in ([], ["parallel.layers=[2, 2, 2, 2]"])
    )
    assert found <= 1.005 * even
