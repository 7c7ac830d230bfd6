"""Splits by the light model of a step: against every split there is, and against the engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planning.test_layer_times import SMALL
from twin.engine import lower, plan, simulate
from twin.loading import load
from twin.planning.compile import SplitRanking
from twin.planning.layer_times import GATHERED, HOST, PASSES, SHARDS, STOPS, WAITED
from twin.planning.pair_times import Gpu
from twin.planning.split_search import search
from twin.planning.stages import evenly
from twin.planning.step_length import LayerCost, Observed, StepCosts, StepLength
from twin.planning.turn_levels import Passes
from twin.scenario import Scenario
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
    reduces: float = 0.0,
    closes: float = 0.0,
    host: float = 0.0,
    gathers: float = 0.0,
    shards: float = 0.0,
    stops: bool = False,
) -> LayerCost:
    """A layer whose backward takes twice its forward (ms); `shards`: of reductions in it."""
    times = {"F": forward, "B": 2 * forward, "I": forward, "W": forward}
    rows: list[tuple[float, ...]] = []
    for kind in PASSES:
        row = [0.0] * (STOPS + 1)
        row[WAITED], row[HOST] = times[kind] / 1e3, host / 1e3
        row[STOPS] = row[HOST] * stops
        row[GATHERED] = row[SHARDS] = 0.0 if kind == "W" else gathers / 1e3
        row[SHARDS] += shards / 1e3 * (kind in "BW")
        rows.append(tuple(row))
    return LayerCost(tuple(rows), 0.0, reduces / 1e3, closes / 1e3)


def costs_of(layers: list[float], before: float, behind: float, **more: Any) -> StepCosts:
    return StepCosts(
        before=cost(before),
        layers=tuple(cost(one, **more) for one in layers),
        behind=(cost(behind),),
        sending=0.0,
        message=0.0,
        gathering=0.0,
        each_pass=0.0,
        buckets=(False, False),
        gpu=Gpu(100, 0.0),
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


def test_what_is_left_to_reduce_takes_half_of_the_links_from_the_next_gather() -> None:
    """A gather of 1 and a forward of 1, a gather and a backward of 2: 5. The layer's reduction of 2
    begins then; the next gather takes 2 beside it, so the second micro-batch takes 6; the last
    reduction is waited for."""
    costs = costs_of([1.0], 0.0, 0.0, gathers=1.0, shards=2.0)
    assert length(costs, (1,), 1) == 5 + 2
    assert length(costs, (1,), 2) == 5 + 6 + 2
    # Behind a gather of 1, a reduction of 9 keeps the links busy beside the next layer.
    slow = costs_of([1.0] * 3, 0.0, 0.0, gathers=1.0, shards=9.0)
    assert length(slow, (3,), 1) == (1 + 3) + (1 + 2 + 10) + (2 + 9 + 9 - 2)


def test_messages_of_a_stage_leave_one_after_the_other() -> None:
    """Forwards end at 1, 2, 3; their messages of 3 are there at 4, 7, 10. The second stage's
    backwards end at 13, 15, 17, their messages are there at 16, 19, 22; 2 for the last."""
    costs = replace(costs_of([1.0] * 2, 0.0, 0.0), sending=3e-3, message=3e-3)
    assert length(costs, (1, 1), 3, "gpipe") == 24
    late = replace(costs, message=4e-3)
    assert length(late, (1, 1), 3, "gpipe") == 24 + 2


def test_reductions_wait_for_all_passes_unless_they_overlap() -> None:
    """Two chunks of a stage, forwards of 1, backwards of 2; the later chunk's gradients are there
    at 4, the other's at 6; each takes 5."""
    costs = costs_of([1.0] * 2, 0.0, 0.0, reduces=5.0)
    for overlaps, expected in ((False, 6 + 10), (True, 4 + 10)):
        step = replace(costs, buckets=(False, overlaps))
        model = StepLength([step], schedule_of("interleaved_1f1b"), (1, 2, 1))
        assert model([(1, 1)]) == [expected * 1_000_000]


def test_a_model_that_events_have_corrected_says_what_they_say() -> None:
    """Forwards twice as long, backwards as long as before, messages of 1."""
    costs = costs_of([1.0] * 4, 0.0, 0.0)
    step = StepLength([costs], schedule_of("1f1b"), (2, 1, 1))
    turns: dict[Passes, float] = {((k, c),): 4e6 for k in PASSES[:2] for c in (0, 1)}
    seen = step.corrected((2, 2), (0,), Observed(turns, 1e6))
    assert seen([(2, 2), (1, 3)]) == [18_000_000, 18_000_000]
    assert step([(2, 2)]) == [12_000_000]


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


def loaded(file: Path, text: str, *overrides: str) -> Scenario:
    file.write_text(f"schema: 1\nname: layout\n{text}cost: {{gpu_hour: 2USD}}\n", encoding="utf-8")
    return load(file, ["software=null", *overrides])


def step_ns(scenario: Scenario) -> int:
    return simulate(lower(plan(scenario))).step_ns


@pytest.mark.parametrize("text", [COPIES, GATHERS, SUMS], ids=["copies", "gathers", "sums"])
def test_a_faster_gpu_with_a_split_of_its_own_is_no_slower(tmp_path: Path, text: str) -> None:
    file = tmp_path / "layout.yaml"
    bandwidth = loaded(file, text).cluster.node.gpu.memory_bandwidth
    plain, fast = (
        step_ns(loaded(file, text, f"{_MEMORY}={speed}B/s"))
        for speed in (bandwidth, 1.5 * bandwidth)
    )
    assert fast <= 1.01 * plain


REDUCTIONS = """\
model: {name: m, layers: 7, hidden: 512, vocab: 128256, ffn: {kind: swiglu, width: 1536},
  attention: {kind: mla, heads: 8, q_lora_rank: 128, kv_lora_rank: 64, qk_nope_head_dim: 64,
    qk_rope_head_dim: 32, v_head_dim: 64}}
cluster: {node: h20-8gpu, nodes: 4, fabric: rail-fat-tree-400g}
parallel: {tensor: 2, context: 2, pipeline: 4, zero: 3, micro_batch: 2, overlap_tensor: bulk,
  sequence_parallel: false, schedule: {kind: zb_h1}}
memory: {offload: [attention_core]}
train: {tokens: 10B, global_batch: 96seq, sequence: 512tok, optimizer: muon}
"""
TOGETHER = """\
model: {name: m, layers: 4, hidden: 8192, vocab: 128256, ffn: {kind: swiglu, width: 24576},
  attention: {kind: gqa, heads: 8, kv_heads: 8, head_dim: 64}}
cluster: {node: h20-8gpu, nodes: 1, fabric: rail-fat-tree-400g}
parallel: {context: 2, pipeline: 2, virtual: 2, overlap_tensor: bulk, sequence_parallel: false,
  zero: 0, overlap_grad_reduce: false, schedule: {kind: interleaved_1f1b}}
memory: {}
train: {tokens: 10B, global_batch: 4seq, sequence: 512tok, optimizer: adamw}
"""
MESSAGES = """\
model: {name: m, layers: 8, hidden: 2048, vocab: 32000, ffn: {kind: swiglu, width: 6144},
  attention: {kind: gqa, heads: 8, kv_heads: 8, head_dim: 64},
  moe: {experts: 64, top_k: 2, width: 512, shared_experts: 1}}
cluster: {node: b200-8gpu, nodes: 2, fabric: rail-fat-tree-400g}
parallel: {pipeline: 8, zero: 1, micro_batch: 2, dispatcher: hybridep, sequence_parallel: false,
  overlap_tensor: none, overlap_grad_reduce: false, schedule: {kind: zb_h1}}
memory: {}
train: {tokens: 10B, global_batch: 160seq, sequence: 2048tok, optimizer: muon}
"""
SOCKETS = """\
model: {name: m, layers: 5, hidden: 4096, vocab: 128256, ffn: {kind: swiglu, width: 12288},
  attention: {kind: mla, heads: 16, q_lora_rank: 128, kv_lora_rank: 64, qk_nope_head_dim: 64,
    qk_rope_head_dim: 32, v_head_dim: 64}}
cluster: {node: h800-8gpu, nodes: 4, fabric: rail-fat-tree-400g}
parallel: {tensor: 4, pipeline: 4, zero: 3, micro_batch: 2, overlap_tensor: none,
  sequence_parallel: true, overlap_grad_reduce: false, schedule: {kind: gpipe}}
memory: {offload: [activations]}
train: {tokens: 10B, global_batch: 96seq, sequence: 2048tok, optimizer: adamw}
"""
ALONE = """\
model: {name: m, layers: 2, hidden: 4096, vocab: 128256, ffn: {kind: swiglu, width: 12288},
  attention: {kind: gqa, heads: 16, kv_heads: 8, head_dim: 64, window: 100},
  moe: {experts: 16, top_k: 2, width: 512, shared_experts: 1}, pattern: [attention+dense,
    attention+moe]}
cluster: {node: a100-80gb-8gpu-8x200g, nodes: 4, fabric: rail-fat-tree-400g}
parallel: {tensor: 4, context: 2, virtual: 2, expert: 4, micro_batch: 2, dispatcher: allgather,
  overlap_tensor: bulk, overlap_param_gather: true, sequence_parallel: true,
  schedule: {kind: interleaved_1f1b, extra_warmup: 1}}
memory: {recompute: [full]}
train: {tokens: 10B, global_batch: 48seq, sequence: 2048tok, optimizer: muon}
"""
NEARLY = """\
model: {name: m, layers: 4, hidden: 8192, vocab: 128256, ffn: {kind: swiglu, width: 24576},
  attention: {kind: mla, heads: 8, q_lora_rank: 128, kv_lora_rank: 64, qk_nope_head_dim: 64,
    qk_rope_head_dim: 32, v_head_dim: 64}}
cluster: {node: h20-8gpu, nodes: 1, fabric: rail-fat-tree-400g}
parallel: {tensor: 2, context: 2, pipeline: 2, virtual: 2, zero: 3, micro_batch: 2,
  overlap_tensor: none, schedule: {kind: interleaved_1f1b, extra_warmup: 1}}
memory: {}
train: {tokens: 10B, global_batch: 8seq, sequence: 512tok, optimizer: adamw}
"""
"""Where a GPU half as fast again got a split that was 5 to 19 % worse than that of the slower one:
the light model did not know that reductions meet the next pass's gathers, that they wait for each
other, what messages wait for each other, or that both ways share a socket's memory. Then 5 and 1 %
worse: the model had one draft, which events did not see; or it agreed with events on one split.
"""


@pytest.mark.parametrize(
    ("text", "field", "known"),
    [
        (REDUCTIONS, "bf16_dense", (2, 3, 2, 0)),
        (TOGETHER, "bf16_dense", (0, 2, 2, 0)),
        (MESSAGES, "memory_bandwidth", (1, 2, 1, 1, 1, 1, 1, 0)),
        (SOCKETS, "bf16_dense", (1, 2, 2, 0)),
        (ALONE, "memory_bandwidth", (2, 0)),
        (NEARLY, "bf16_dense", (1, 1, 2, 0)),
    ],
    ids=["reductions", "together", "messages", "sockets", "alone", "nearly"],
)
def test_a_faster_gpu_keeps_a_split_that_is_as_good(
    tmp_path: Path, text: str, field: str, known: tuple[int, ...]
) -> None:
    file = tmp_path / "layout.yaml"
    gpu = loaded(file, text).cluster.node.gpu
    unit = "B/s" if field == "memory_bandwidth" else "FLOP/s"
    faster = f"cluster.node.gpu.{field}={1.5 * getattr(gpu, field):.0f}{unit}"
    own = step_ns(loaded(file, text, faster))
    assert own <= 1.01 * step_ns(loaded(file, text, faster, f"parallel.layers={list(known)}"))


HALVES = """\
model: {name: m, layers: 6, hidden: 512, vocab: 32000, ffn: {kind: swiglu, width: 1536},
  attention: {kind: gqa, heads: 16, kv_heads: 8, head_dim: 64}}
cluster: {node: gb200-nvl72, nodes: 1, fabric: rail-fat-tree-400g}
parallel: {tensor: 2, context: 2, pipeline: 2, overlap_tensor: bulk, sequence_parallel: true,
  overlap_grad_reduce: false, schedule: {kind: zb_h1}}
memory: {recompute: [full]}
train: {tokens: 10B, global_batch: 18seq, sequence: 8192tok, optimizer: muon, precision: fp8}
"""
PAIRS = """\
model: {name: m, layers: 16, hidden: 512, vocab: 32000, ffn: {kind: swiglu, width: 1536},
  attention: {kind: mla, heads: 16, q_lora_rank: 128, kv_lora_rank: 64, qk_nope_head_dim: 64,
    qk_rope_head_dim: 32, v_head_dim: 64}}
cluster: {node: h100-8gpu, nodes: 1, fabric: rail-fat-tree-400g}
parallel: {pipeline: 4, virtual: 2, micro_batch: 2, overlap_tensor: bulk,
  schedule: {kind: interleaved_1f1b, extra_warmup: 1, overlap_all_to_all: true}}
memory: {}
train: {tokens: 10B, global_batch: 32seq, sequence: 2048tok, optimizer: muon}
"""
BEHIND = """\
model: {name: m, layers: 10, hidden: 2048, vocab: 4096, ffn: {kind: swiglu, width: 6144},
  attention: {kind: mla, heads: 8, q_lora_rank: 128, kv_lora_rank: 64, qk_nope_head_dim: 64,
    qk_rope_head_dim: 32, v_head_dim: 64}}
cluster: {node: b200-8gpu, nodes: 4, fabric: rail-fat-tree-400g}
parallel: {tensor: 4, pipeline: 4, virtual: 2, zero: 2, overlap_tensor: none,
  sequence_parallel: false, overlap_grad_reduce: false,
  schedule: {kind: interleaved_1f1b, extra_warmup: 1, overlap_all_to_all: true}}
memory: {offload: [attention_core]}
train: {tokens: 10B, global_batch: 48seq, sequence: 8192tok, optimizer: adamw}
"""
"""Where passes were up to 45 % too short in the light model, or the step off by 12 and 15 %:
gradients of input and of weights that come apart have no sums beside them, and layers update
together; passes of pairs begin and end apart; tensor ranks gather what they receive behind the turn
before."""


@pytest.mark.parametrize(
    ("text", "splits", "near"),
    [
        (HALVES, [(3, 3), (4, 2)], 0.015),
        (PAIRS, [(2,) * 8, (1, 2, 2, 2, 3, 3, 2, 1), (2, 2, 2, 2, 3, 3, 2, 0)], 0.005),
        (BEHIND, [(2, 1, 1, 1, 1, 1, 2, 1), (1, 1, 1, 1, 1, 1, 2, 2)], 0.03),
    ],
    ids=["halves", "pairs", "behind"],
)
def test_the_light_model_is_as_long_as_events(
    tmp_path: Path, text: str, splits: list[tuple[int, ...]], near: float
) -> None:
    file = tmp_path / "layout.yaml"
    ranking = SplitRanking(loaded(file, text))
    light = ranking._light(splits, ranking._places)
    events = [step_ns(loaded(file, text, f"parallel.layers={list(one)}")) for one in splits]
    assert light == [pytest.approx(one, rel=near) for one in events]


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
