"""State, work and traffic of optimizers: laws over the axis, and Kimi K2's numbers by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.arch.ops import Matrices, Weights, Work
from twin.optimizers.adamw import AdamW
from twin.optimizers.base import Holders, Maxima, Optimizer, OptimizerStep, Sent, Share, squares
from twin.optimizers.muon import Muon
from twin.optimizers.muonclip import MuonClip
from twin.optimizers.orthogonal import alike, busiest, newton_schulz, normalisation
from twin.spec.axis import members

ALL: list[Any] = [
    AdamW(),
    *(cls(newton_schulz=how) for cls in (Muon, MuonClip) for how in ("replicated", "partitioned")),
]
NAMES = [f"{one.kind} {getattr(one, 'newton_schulz', '')}".strip() for one in ALL]
EXPERTS = Matrices("expert", 288, 2048, 7168)
"""One GPU's expert matrices in Kimi K2's layout: 4 layers x 24 experts x 3."""


def weights(matrices: tuple[Matrices, ...], other: int = 0) -> Weights:
    """Weights whose matrices have these shapes, and `other` replicated ones beside."""
    held = dict.fromkeys(("replicated", "tensor", "expert"), 0)
    for group in matrices:
        held[group.bucket] += group.weights
    return Weights(
        replicated=held["replicated"] + other,
        tensor=held["tensor"],
        expert=held["expert"],
        replicated_matrices=held["replicated"],
        tensor_matrices=held["tensor"],
        expert_matrices=held["expert"],
    )


def total(works: tuple[tuple[str, Work], ...]) -> Work:
    """All the work of a step."""
    return sum((work for _, work in works), Work())


SHAPES = st.lists(
    st.builds(
        Matrices,
        st.sampled_from(["replicated", "tensor", "expert"]),
        st.integers(1, 9),
        st.integers(1, 99),
        st.integers(1, 99),
    ),
    max_size=4,
).map(tuple)


def test_every_member_of_the_axis_is_tested() -> None:
    found = set(members("twin.optimizers", Optimizer))
    assert found == {one.kind for one in ALL} == {"adamw", "muon", "muonclip"}


@pytest.mark.parametrize("optimizer", ALL, ids=NAMES)
@given(shapes=SHAPES, other=st.integers(0, 10**6), shards=st.integers(1, 64))
def test_more_shards_never_mean_more_work_and_states_add_up_over_layers(
    optimizer: Optimizer, shapes: tuple[Matrices, ...], other: int, shards: int
) -> None:
    held = weights(shapes, other)
    whole = total(optimizer.step(Share(held, shapes)).works)
    cut = total(optimizer.step(Share(held, shapes, shards, shards)).works)
    assert cut.bytes <= whole.bytes * (1 + 1e-12)
    partitioned = getattr(optimizer, "newton_schulz", "") == "partitioned"
    assert cut.flop <= whole.flop if partitioned else cut.flop == whole.flop
    dense, expert = optimizer.state_bytes(held)
    assert optimizer.state_bytes(held + held) == (2 * dense, 2 * expert)
    assert 8 * held.total <= dense + expert <= 12 * held.total


@pytest.mark.parametrize("optimizer", ALL, ids=NAMES)
@given(shapes=SHAPES)
def test_a_rank_alone_gathers_nothing(optimizer: Optimizer, shapes: tuple[Matrices, ...]) -> None:
    step = optimizer.step(Share(weights(shapes), shapes))
    assert (step.before, step.after) == ((), ())


def test_adamw_keeps_12_bytes_and_moves_30_for_each_weight_of_its_shard() -> None:
    held = Weights(replicated=600, tensor=400, expert=3000)
    assert AdamW().state_bytes(held) == (12_000.0, 36_000.0)
    step = AdamW().step(Share(held, dense=10, expert=5))
    assert step.works == (("update", Work(bytes=30.0 * (100 + 600), kernels=1)),)


def test_bf16_moments_are_four_bytes_less_of_state_and_eight_of_traffic() -> None:
    """DeepSeek-V3, section 3.3.3: master weights and gradients stay fp32."""
    held, half = Weights(replicated=1000), AdamW(moments="bf16")
    assert half.state_bytes(held) == ((4 + 2 + 2) * 1000, 0)
    assert half.step(Share(held)).works == (("update", Work(bytes=22.0 * 1000, kernels=1)),)
    assert [phase.bytes for phase in half.on_host(Share(held))] == [4000, 28_000, 2000]


@pytest.mark.parametrize("optimizer", ALL, ids=NAMES)
@given(shapes=SHAPES, other=st.integers(0, 10**6), shards=st.integers(1, 64))
def test_dense_weights_and_experts_are_updated_apart_for_the_same_work(
    optimizer: Optimizer, shapes: tuple[Matrices, ...], other: int, shards: int
) -> None:
    """What the host keeps of a rank's states is one part of its step, what the device keeps the
    other."""
    share = Share(weights(shapes, other), shapes, shards, shards)
    parts = [share.only(frozenset({who})) for who in get_args(Holders)]
    whole = total(optimizer.step(share).works)
    apart = sum((total(optimizer.step(part).works) for part in parts), Work())
    assert apart.bytes == pytest.approx(whole.bytes)
    if getattr(optimizer, "newton_schulz", "") != "partitioned":  # else the busiest rank differs
        assert apart.flop == pytest.approx(whole.flop)
    assert sum(part.learned for part in parts) == pytest.approx(share.learned)
    assert share.only(frozenset()).learned == 0


@pytest.mark.parametrize("optimizer", ALL, ids=NAMES)
@given(shapes=SHAPES, other=st.integers(1, 10**6), shards=st.integers(1, 64))
def test_states_that_pass_through_the_device_come_up_and_go_back_whole(
    optimizer: Optimizer, shapes: tuple[Matrices, ...], other: int, shards: int
) -> None:
    share = Share(weights(shapes, other), shapes, shards, shards)
    up, update, down = optimizer.through_device(share)
    assert (up.place, update.place, down.place) == ("from_host", "device", "to_host")
    assert up.bytes == down.bytes == share.local(*optimizer.state_bytes(share.weights))
    assert update.works == optimizer.step(share).works


@pytest.mark.parametrize("optimizer", ALL, ids=NAMES)
@given(shapes=SHAPES, other=st.integers(1, 10**6), shards=st.integers(1, 64))
def test_a_host_that_updates_gets_gradients_and_gives_weights(
    optimizer: Optimizer, shapes: tuple[Matrices, ...], other: int, shards: int
) -> None:
    """Of each weight 4 bytes down and 2 up; of a matrix's under Muon also 2 up, the momentum, and 2
    down, the result. Its memory carries all that is copied and the update itself."""
    share = Share(weights(shapes, other), shapes, shards, shards)
    phases = optimizer.on_host(share)
    first, *_, last = phases
    assert (first.place, last.place) == ("to_host", "from_host")
    moved = {
        place: sum(phase.bytes for phase in phases if phase.place == place)
        for place in ("to_host", "from_host", "host")
    }
    held = share.weights
    dense = held.replicated_matrices + held.tensor_matrices
    muon = 0.0 if optimizer.kind == "adamw" else share.local(dense, held.expert_matrices)
    assert moved["to_host"] == pytest.approx(4 * share.learned + 2 * muon)
    assert moved["from_host"] == pytest.approx(2 * share.learned + 2 * muon)
    copied = moved["to_host"] + moved["from_host"]
    assert moved["host"] == pytest.approx(30 * (share.learned - muon) + 26 * muon + copied)


@pytest.mark.parametrize("optimizer", ALL, ids=NAMES)
def test_expert_biases_have_no_state_and_no_update(optimizer: Any) -> None:
    """A rule of their own moves the 384 biases of a router; they only ride along in the counts."""
    with_bias, without = Weights(replicated=1384, buffers=384), Weights(replicated=1000)
    assert optimizer.state_bytes(with_bias) == optimizer.state_bytes(without)
    assert optimizer.step(Share(with_bias, dense=4)) == optimizer.step(Share(without, dense=4))


def test_muonclip_keeps_8_bytes_for_matrices_and_12_for_the_rest() -> None:
    held = Weights(replicated=100, expert=50, replicated_matrices=70, expert_matrices=50)
    assert MuonClip().state_bytes(held) == (8.0 * 70 + 12.0 * 30, 8.0 * 50)


def test_kimi_k2s_expert_state_of_four_layers_is_33_8_gb_per_gpu() -> None:
    """4 MoE layers of 24 experts on a GPU: 4.23e9 weights x 8 bytes, and nothing to shard over."""
    _, expert = MuonClip().state_bytes(weights((EXPERTS,)))
    assert expert == pytest.approx(33.8e9, rel=2e-3)


def test_newton_schulz_of_one_gpus_expert_matrices_is_198_tflop() -> None:
    """n = 2,048, m = 7,168: 5 x (4 n^2 m + 2 n^3) = 0.687 TFLOP, x 288; 0.33 s at 600 TFLOP/s."""
    work = newton_schulz(EXPERTS)
    assert work.flop == pytest.approx(198e12, rel=2e-3)
    assert work.flop / 600e12 == pytest.approx(0.33, abs=0.005)


def test_matrices_of_one_shape_go_through_newton_schulz_together() -> None:
    """2^26 weights in one product: four expert matrices of Kimi K2, or all small ones of all layers
    of a rank at once; 5 iterations of 3 products."""
    assert newton_schulz(EXPERTS).kernels == 288 / 4 * 5 * 3
    small = Matrices("replicated", 3, 64, 128)
    other = Matrices("expert", 3, 64, 128)
    groups = alike((small, other, small, Matrices("replicated", 2, 128, 64)))
    assert sorted(group.count for group in groups) == [2, 3, 6]
    assert [newton_schulz(group).kernels for group in groups] == [15, 15, 15]
    assert normalisation(replace(small, count=1 << 20)).kernels == 2 * 128


def multiply(left: tuple[int, int], right: tuple[int, int], tally: list[float]) -> tuple[int, int]:
    """The shape of a product, having tallied its FLOP."""
    assert left[1] == right[0]
    tally.append(2.0 * left[0] * left[1] * right[1])
    return left[0], right[1]


@given(rows=st.integers(1, 300), cols=st.integers(1, 300), count=st.integers(1, 5))
def test_newton_schulz_counts_every_product_of_the_algorithm(
    rows: int, cols: int, count: int
) -> None:
    tally: list[float] = []
    X = (min(rows, cols), max(rows, cols))
    for _ in range(5 * count):
        A = multiply(X, (X[1], X[0]), tally)
        B = multiply(A, A, tally)
        X = multiply(B, X, tally)
    assert newton_schulz(Matrices("tensor", count, rows, cols)).flop == pytest.approx(sum(tally))


@given(rows=st.integers(1, 300), cols=st.integers(1, 300))
def test_a_tall_matrix_costs_what_its_transpose_costs(rows: int, cols: int) -> None:
    assert newton_schulz(Matrices("tensor", 1, rows, cols)) == newton_schulz(
        Matrices("tensor", 1, cols, rows)
    )


DENSE = Matrices("replicated", 2, 1536, 7168)


def k2(optimizer: Optimizer, *, sharded: bool = True) -> tuple[Weights, OptimizerStep]:
    """A step on 128 replicas of dense weights and 8 of experts."""
    held = weights((EXPERTS, DENSE), other=1000)
    return held, optimizer.step(Share(held, (EXPERTS, DENSE), 128, 8, sharded))


def test_replicas_do_not_share_newton_schulz_but_gather_bf16_momentum() -> None:
    """Moonlight, algorithm 1: 2 bytes per matrix weight are gathered beside the 4 + 4 that AdamW
    moves."""
    held, step = k2(Muon())
    assert step.before == (
        Sent("momentum_gather", "all_gather", 2 * DENSE.weights, "dense"),
        Sent("momentum_gather", "all_gather", 2 * held.expert, "expert"),
    )
    assert step.after == ()
    products = [work for kind, work in step.works if kind == "gemm"]
    assert products == [newton_schulz(EXPERTS), newton_schulz(DENSE)]
    update = step.works[0][1].bytes
    assert update == pytest.approx(26 * (held.expert / 8 + DENSE.weights / 128) + 30 * (1000 / 128))


def test_one_owner_of_each_matrix_gets_its_momentum_and_sends_the_result_back() -> None:
    """288 expert matrices over 8 owners are 36 each; two dense ones over 128 leave most ranks with
    none, and the busiest with one. Each rank sends its own slices there, and gets them back: 2
    bytes per weight of its shard, an eighth and a 128th of what a gather receives."""
    held, step = k2(Muon(newton_schulz="partitioned"))
    products = {work.flop for kind, work in step.works if kind == "gemm"}
    assert products == {newton_schulz(EXPERTS).flop / 8, newton_schulz(DENSE).flop / 2}
    sizes: dict[Holders, float] = {"dense": 2 * DENSE.weights / 128, "expert": 2 * held.expert / 8}
    for sent, name in ((step.before, "momentum_to_owners"), (step.after, "update_from_owners")):
        assert sent == tuple(Sent(name, "all_to_all", size, who) for who, size in sizes.items())


def test_without_zero_owners_gather_results_only() -> None:
    """Every replica has all momentum; the new part is what the owner made: 2 bytes per weight."""
    held, step = k2(Muon(newton_schulz="partitioned"), sharded=False)
    assert step.before == ()
    assert [(sent.kind, sent.bytes) for sent in step.after] == [
        ("all_gather", 2 * DENSE.weights),
        ("all_gather", 2 * held.expert),
    ]
    _, replicated = k2(Muon(), sharded=False)
    assert (replicated.before, replicated.after) == ((), ())


@given(shapes=SHAPES, owners=st.integers(1, 20))
def test_the_busiest_owner_has_at_least_its_share_and_at_most_one_matrix_more(
    shapes: tuple[Matrices, ...], owners: int
) -> None:
    """Graham's bound for greedy assignment: the mean, and the largest matrix on top."""
    held = sum(newton_schulz(group).flop for group in busiest(shapes, owners))
    whole = sum(newton_schulz(group).flop for group in shapes)
    largest = max((newton_schulz(group).flop / group.count for group in shapes), default=0.0)
    assert whole / owners <= held * (1 + 1e-9)
    assert held <= (whole / owners + largest) * (1 + 1e-9)


def test_qk_clip_agrees_on_all_heads_at_once_and_scales_the_masters_of_the_shard() -> None:
    """Four layers of 64 heads: an all-reduce of 256 fp32 maxima, 1 KiB; of 1,000,000
    weights that make queries and keys a rank reads and writes an eighth in fp32."""
    held = Weights(tensor=10**6)
    share = Share(held, dense=8, attentions=4, heads=4 * 64, query_key=10**6)
    clipped, plain = MuonClip().step(share), Muon().step(share)
    assert clipped.maxima == Maxima("qk_maxima", 1024.0)
    assert plain.maxima is None
    assert clipped.works == (*plain.works, ("update", Work(bytes=8.0 * 10**6 / 8, kernels=8)))


def test_the_norm_reads_each_gradient_of_the_shard_once() -> None:
    share = Share(Weights(replicated=500, expert=160, buffers=20), dense=4, expert=2)
    assert share.learned == 480 / 4 + 160 / 2
    assert squares(share.learned) == Work(bytes=4.0 * 200, kernels=1)


def test_shapes_that_do_not_cover_the_matrices_are_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match="expert: shapes hold 0"):
        MuonClip().step(Share(weights((EXPERTS,))))


def test_moments_in_8_bits_weigh_a_byte_and_their_scales() -> None:
    """Master weights of 4 bytes; int8 has an fp32 scale per 256 values. DeepSeek-V3's bf16: 8."""
    held = Weights(tensor=256)
    sizes = {
        kind: AdamW(moments=kind).state_bytes(held)[0] / 256
        for kind in ("fp32", "bf16", "fp8", "int8")
    }
    assert sizes == {"fp32": 12, "bf16": 8, "fp8": 6, "int8": 6 + 2 * 4 / 256}
    assert AdamW(moments="fp8", variance="bf16").state_bytes(held)[0] == 256 * (4 + 1 + 2)


def test_moments_in_fp8_are_made_fp32_and_back_around_the_update() -> None:
    """Transformer Engine's FusedAdam: of each moment 22 bytes move where int8 moves 2 and a
    little, and three kernels more."""
    share = Share(Weights(tensor=1000))
    works = {kind: total(AdamW(moments=kind).step(share).works) for kind in ("fp8", "int8")}
    assert works["fp8"].bytes == 1000 * (4 + 2 * 4 + 2 + 2 * 22)
    assert works["int8"].bytes == pytest.approx(1000 * (4 + 2 * 4 + 2 + 4 * (1 + 4 / 256)))
    assert works["fp8"].kernels - works["int8"].kernels == 6
    one = total(AdamW(moments="bf16", variance="fp8").step(share).works)
    assert one.bytes == 1000 * (4 + 2 * 4 + 2 + 4 + 22)
