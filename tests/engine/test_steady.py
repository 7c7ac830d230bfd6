"""A proven steady state gives the very step that playing it in full gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.programs import by_hand, segment, with_exchange
from twin.engine import lower, plan
from twin.engine.program import Program, StageMessage
from twin.engine.simulate import simulate
from twin.engine.trace import Trace
from twin.loading import load
from twin.schedules.base import Schedule
from twin.schedules.dualpipe import DualPipe
from twin.schedules.gpipe import GPipe
from twin.schedules.interleaved import Interleaved
from twin.schedules.one_f_one_b import OneForwardOneBackward
from twin.schedules.zb_h1 import ZeroBubbleH1
from twin.schedules.zb_h2 import ZeroBubbleH2

pytestmark = pytest.mark.usefixtures("each_player")


def both(program: Program) -> tuple[Trace, Trace]:
    """The step extrapolated and played in full."""
    return simulate(program), simulate(program, extrapolate=False)


def assert_same(short: Trace, full: Trace, tolerance: int) -> None:
    """Same step and same breakdown of every role, within a tolerance in ns; same bytes."""
    assert abs(short.step_ns - full.step_ns) <= tolerance
    for a, b in zip(short.breakdown_ns, full.breakdown_ns, strict=True):
        assert sum(a.values()) == short.step_ns
        assert all(abs(a[name] - b[name]) <= tolerance for name in a)
    for link, size in full.link_bytes.items():
        assert abs(short.link_bytes[link] - size) <= 1e-9 * size


@settings(max_examples=25)
@given(
    stages=st.integers(1, 6),
    durations=st.lists(st.integers(50, 400), min_size=12, max_size=12),
    message=st.integers(0, 60),
    microbatches=st.integers(60, 90),
)
def test_1f1b_without_shared_links_to_the_nanosecond(
    stages: int, durations: list[int], message: int, microbatches: int
) -> None:
    program = by_hand(
        OneForwardOneBackward(),
        (stages, 1, microbatches),
        lambda c: segment(durations[c]),
        lambda c: segment(durations[6 + c], "backward"),
        StageMessage(0.0, "nic", message),
    )
    assert_same(*both(program), tolerance=0)


@settings(max_examples=10)
@given(
    stages=st.integers(2, 4),
    durations=st.lists(st.integers(50, 400), min_size=24, max_size=24),
    message=st.integers(0, 60),
)
def test_interleaved_without_shared_links_to_the_nanosecond(
    stages: int, durations: list[int], message: int
) -> None:
    program = by_hand(
        Interleaved(),
        (stages, 3, 40 * stages),
        lambda c: segment(durations[c]),
        lambda c: segment(durations[12 + c], "backward"),
        StageMessage(0.0, "nic", message),
    )
    assert_same(*both(program), tolerance=0)


@settings(max_examples=10)
@given(
    exchange=st.integers(1, 300_000),
    message=st.integers(1, 120_000),
    durations=st.lists(st.integers(50_000, 400_000), min_size=16, max_size=16),
)
def test_with_shared_links_to_a_microsecond(
    exchange: int, message: int, durations: list[int]
) -> None:
    program = by_hand(
        Interleaved(),
        (4, 2, 200),
        lambda c: with_exchange(durations[c], float(exchange)),
        lambda c: with_exchange(durations[8 + c], float(exchange), "backward"),
        StageMessage(float(message), "nic", 3000),
    )
    assert_same(*both(program), tolerance=1000)


@pytest.mark.parametrize(
    ("schedule", "shape"),
    [
        (Interleaved(extra_warmup=1, overlap_all_to_all=True, defer_weight_grad=True), (3, 2, 60)),
        (ZeroBubbleH1(), (4, 1, 70)),
        (ZeroBubbleH2(), (4, 1, 70)),
        (ZeroBubbleH2(weights_late=4), (4, 1, 90)),
        (DualPipe(), (4, 1, 80)),
    ],
)
@settings(max_examples=8)
@given(durations=st.lists(st.integers(50, 400), min_size=24, max_size=24), exchange=st.booleans())
def test_pairs_and_split_backwards_to_the_nanosecond(
    schedule: Schedule, shape: tuple[int, int, int], durations: list[int], exchange: bool
) -> None:
    program = by_hand(
        schedule,
        shape,
        lambda c: with_exchange(durations[c], float(exchange * durations[c + 1])),
        lambda c: with_exchange(durations[8 + c], float(exchange * durations[9 + c]), "backward"),
        StageMessage(0.0, "nic", 30),
        lambda c: segment(durations[16 + c], "backward_weight"),
    )
    short, full = both(program)
    assert_same(short, full, tolerance=0)


def test_a_long_step_is_really_extrapolated() -> None:
    program = by_hand(
        OneForwardOneBackward(),
        (4, 1, 1000),
        lambda c: segment(100 + c),
        lambda _: segment(200, "backward"),
    )
    short, full = both(program)
    assert_same(short, full, tolerance=0)
    assert short.played_microbatches < 50
    assert full.played_microbatches == 1000
    assert short.events < full.events / 20
    assert 0.9 < short.extrapolated_fraction < 1
    assert full.extrapolated_fraction == 0


def test_a_period_of_several_micro_batches_is_found() -> None:
    """The critical circuit of these stages comes round every four micro-batches: latency 56 on a
    loop through all four."""
    program = by_hand(
        OneForwardOneBackward(),
        (4, 1, 101),
        lambda c: segment(100 + c),
        lambda _: segment(200, "backward"),
        StageMessage(0.0, "nic", 53),
    )
    short, full = both(program)
    assert_same(short, full, tolerance=0)
    assert short.repeats > 1


def test_gpipe_has_no_steady_state_and_is_played_in_full() -> None:
    program = by_hand(GPipe(), (3, 1, 80), lambda _: segment(10), lambda _: segment(20))
    trace = simulate(program)
    assert (trace.played_microbatches, trace.repeats) == (80, 1)


OTHER_BEGINNING = """
schema: 1
name: what the standing attack found, made small
model:
  name: m
  layers: 2
  hidden: 512
  vocab: 128256
  attention:
    {kind: mla, heads: 16, q_lora_rank: 128, kv_lora_rank: 64, qk_nope_head_dim: 64,
     qk_rope_head_dim: 32, v_head_dim: 64}
  ffn: {kind: swiglu, width: 1536}
  moe: {experts: 64, top_k: 1, width: 512, shared_experts: 1, first_dense_layers: 0}
cluster: {node: h100-8gpu, nodes: 1, fabric: rail-fat-tree-400g}
parallel:
  {pipeline: 1, tensor: 8, zero: 1, micro_batch: 2, schedule: 1f1b, dispatcher: hybridep,
   overlap_param_gather: true, overlap_grad_reduce: true, sequence_parallel: true,
   overlap_tensor: none}
memory: {recompute: [], offload: []}
train: {tokens: 10B, global_batch: 64seq, sequence: 512tok, optimizer: adamw, precision: bf16}
software: null
"""


def test_the_first_passes_may_hold_other_operations(tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(OTHER_BEGINNING)
    short, full = both(lower(plan(load(file))))
    assert short.played_microbatches < short.microbatches
    assert_same(short, full, tolerance=0)
