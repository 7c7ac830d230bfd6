"""Laws of the memory policy: what is recomputed, packed and offloaded, on layers made by hand and
on real ones; and where what is offloaded is, action by action."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planning.examples import MOE, scenario, schedule
from twin.arch.fp8 import packed_bytes, packing, stored
from twin.arch.ops import Layer, Op, Weights, Work
from twin.engine import plan
from twin.errors import ScenarioError
from twin.loading import load
from twin.planning.chunks import layers_of
from twin.planning.footprint import (
    Footprint,
    back_bytes,
    footprint,
    kept_by_op,
    kept_bytes,
    saved_bytes,
    sent_by_op,
)
from twin.planning.memory import on_fullest_node
from twin.planning.mesh import lay_out
from twin.planning.offload import Trip, offload_bytes, offloaded, trips
from twin.planning.types import StageMemory
from twin.planning.walk import enough_microbatches, walk
from twin.schedules import KNOWN
from twin.schedules.base import Action
from twin.spec.memory import Fp8Store, MemorySpec, OffloadedActivations, Recompute

PLAIN = "parallel.dispatcher=alltoall"
K2 = load("kimi-k2-256xh800", [PLAIN])
LAYERS = {layer.kind: layer for layer in layers_of(K2)}
POLICIES: tuple[Recompute, ...] = get_args(Recompute)
STORES: tuple[Fp8Store, ...] = get_args(Fp8Store)
KEEP = MemorySpec()


def block(saved: float) -> Layer:
    op = Op("a", "gemm", Work(), Work(), saved=saved, output=saved)
    return Layer("dense", (op,), Weights(), saved)


def sending(saved: float, sent: float) -> Footprint:
    """Of a chunk that sends a part of what it keeps to the host."""
    return replace(footprint([block(saved)], KEEP), sent=sent)


def staying(needs: dict[int, Footprint]) -> dict[int, Footprint]:
    """The same chunks without offload."""
    return {chunk: replace(need, sent=0.0) for chunk, need in needs.items()}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("policy", POLICIES)
def test_recomputing_more_never_keeps_more(kind: str, policy: Recompute) -> None:
    layer = LAYERS[kind]
    some: tuple[tuple[Recompute, ...], ...]
    some = (), ("norms",), ("norms", "swiglu"), ("full",), POLICIES
    for others in some:
        less = MemorySpec(recompute=tuple(one for one in others if one != policy))
        more = MemorySpec(recompute=(*less.recompute, policy))
        assert kept_bytes(layer, more) <= kept_bytes(layer, less)


@pytest.mark.parametrize("stores", [(one,) for one in STORES] + list(combinations(STORES, 2)))
def test_what_is_packed_is_kept_in_a_little_more_than_half(stores: tuple[Fp8Store, ...]) -> None:
    """1 byte and 4 of each 128 instead of 2: 33/64."""
    layer, memory = LAYERS["moe"], MemorySpec(fp8_store=stores)
    names = set(stored(layer, memory).values())
    whole = sum(item.saved for item in layer.items if item.name in names)
    assert whole > 0
    assert kept_bytes(layer, memory) == kept_bytes(layer, KEEP) - whole * (1 - 33 / 64)
    assert packed_bytes(128 * 2) == 128 + 4


def test_what_is_packed_comes_back_whole_beside_it() -> None:
    layer, memory = LAYERS["moe"], MemorySpec(fp8_store=("moe_up_input",))
    copies = 8 * 2 * 7168 * 4096
    assert kept_bytes(layer, memory) == saved_bytes(layer) - copies + packed_bytes(copies)
    assert back_bytes(layer, memory) == copies


def test_packing_follows_the_use_and_costs_a_kernel_each_way() -> None:
    """Of what 8 copies of a token bring to the experts: 2 bytes are read and 1.03125 written."""
    plain = load("kimi-k2-256xh800", ["memory.fp8_store=[]", PLAIN])
    layer = next(one for one in layers_of(plain) if one.kind == "moe")
    packed = packing(layer, MemorySpec(fp8_store=STORES))
    names = [item.name for item in packed.items]
    made = [name for name in names if name.startswith("fp8_pack_")]
    assert made == ["fp8_pack_shared_up", "fp8_pack_dispatch_sort", "fp8_pack_experts_up"]
    assert names.index("fp8_pack_dispatch_sort") == names.index("experts_up") + 1
    pack = next(item for item in packed.items if item.name == "fp8_pack_dispatch_sort")
    assert isinstance(pack, Op)
    assert pack.forward == pack.backward == Work(bytes=8 * 7168 * 4096 * 3.03125, kernels=1)
    assert [item for item in packed.items if item.name not in made] == list(layer.items)


def test_dense_layers_pack_only_the_input_of_a_swiglu() -> None:
    assert set(stored(LAYERS["dense"], MemorySpec(fp8_store=STORES)).values()) == {"ffn_up"}
    gelu = scenario(model={"ffn": {"kind": "gelu", "width": 256}})
    dense = layers_of(gelu)[1]
    assert stored(dense, MemorySpec(fp8_store=STORES)) == {}


def test_a_layer_that_keeps_its_input_only_packs_nothing() -> None:
    memory = MemorySpec(recompute=("full",), fp8_store=STORES)
    assert packing(LAYERS["moe"], memory) is LAYERS["moe"]
    assert kept_bytes(LAYERS["moe"], memory) == LAYERS["moe"].input_bytes


def test_the_down_projection_runs_again_for_nothing() -> None:
    """Routing weights enter before it, so no backward pass needs its output."""
    layer = LAYERS["moe"]
    again = MemorySpec(recompute=("moe_down",))
    assert kept_bytes(layer, again) == kept_bytes(layer, KEEP)


def test_a_policy_nobody_knows_is_told_with_the_nearest() -> None:
    with pytest.raises(ScenarioError) as caught:
        load("kimi-k2-256xh800", ["memory.recompute=[norm]"])
    (found,) = caught.value.problems
    assert (found.code, found.path) == ("TW016", "memory.recompute.0")
    assert "norms" in found.hint


ORDER = [
    *(Action("F", 0, batch) for batch in range(4)),
    Action("B", 0, 0),
    Action("F", 0, 4),
    Action("B", 0, 1),
    *(Action("B", 0, batch) for batch in (2, 3, 4)),
]
"""F0 F1 F2 F3 B0 F4 B1 B2 B3 B4, the first of four stages under 1F1B."""


def test_the_trips_of_a_short_order_by_hand() -> None:
    """F0's backward has none before it, and F4 no forward after it: both stay. F1 leaves under F2,
    F3 waits for that, and it comes back under B0. F3 leaves under F4; nothing waits for that copy
    but its own way back, under B2."""
    assert trips(ORDER) == {
        (0, 1): Trip(out=2, gone=3, back=4),
        (0, 2): Trip(out=3, gone=5, back=6),
        (0, 3): Trip(out=5, gone=7, back=7),
    }
    assert offloaded(ORDER) == {(0, 1), (0, 2), (0, 3)}


def test_where_the_activations_of_a_short_order_are_by_hand() -> None:
    """10 bytes each. While F3 runs F0, F2 and F3 are on the device; F1 is on the host only, and F2
    on its way there."""
    need = {0: sending(10, 10)}
    found, plain = walk(ORDER, need), walk(ORDER, staying(need))
    kept = found.left[:, 0].tolist()
    assert kept == [10, 20, 30, 30, 30, 30, 30, 20, 10, 0]
    assert plain.left[:, 0].tolist() == found.kept.tolist()
    assert found.kept.tolist() == [10, 20, 30, 40, 30, 40, 30, 20, 10, 0]
    assert found.host.tolist() == [0, 0, 10, 20, 20, 20, 20, 10, 0, 0]


shapes = st.sampled_from(
    [
        (kind, stages, chunks, microbatches)
        for kind in KNOWN
        for stages in (1, 2, 4, 8)
        for chunks in (1, 2, 4)
        for microbatches in (1, 5, 8, 12, 40, 64)
        if not schedule(kind).problems(stages, chunks, microbatches)
    ]
)


def needs_of(kind: str, stages: int, chunks: int, data: st.DataObject) -> dict[int, Footprint]:
    number = len(schedule(kind).chunk_map(stages, chunks).part_of)
    sizes = [data.draw(st.integers(0, 100)) for _ in range(number)]
    return {
        chunk: sending(size, data.draw(st.integers(0, size))) for chunk, size in enumerate(sizes)
    }


@given(shapes, st.data())
def test_offload_moves_bytes_and_neither_makes_nor_loses_any(
    shape: tuple[str, int, int, int], data: st.DataObject
) -> None:
    """Device and host hold what is kept, and twice what is on its way; the device never more than
    without offload, the host nothing at the end."""
    kind, stages, chunks, microbatches = shape
    need = needs_of(kind, stages, chunks, data)
    for order in schedule(kind).order(stages, chunks, microbatches):
        here, away = walk(order, staying(need)), walk(order, need)
        assert (away.during <= here.during).all()
        assert away.peak().held.total <= here.peak().held.total
        assert (away.kept == here.kept).all()
        gone = here.during[:, 0] - away.during[:, 0]
        assert (gone >= 0).all()
        assert (gone <= away.host).all()
        assert (away.host <= away.kept.max()).all()
        at, moving = np.arange(len(order)), np.zeros(len(order))
        for (chunk, _), trip in trips(order).items():
            there = (trip.gone <= at) & (at < trip.back)
            on_its_way = (trip.out <= at) & (at <= trip.back) & ~there
            moving += need[chunk].sent * on_its_way
        assert (away.host - moving == gone).all()
        assert away.host_left[-1] == 0


@given(shapes, st.data())
def test_the_short_walk_finds_the_same_bytes_with_offload(
    shape: tuple[str, int, int, int], data: st.DataObject
) -> None:
    kind, stages, chunks, microbatches = shape
    need = needs_of(kind, stages, chunks, data)
    plays = schedule(kind)
    short = enough_microbatches(plays, stages, chunks, microbatches)
    for whole, part in zip(
        plays.order(stages, chunks, microbatches), plays.order(stages, chunks, short), strict=True
    ):
        long, brief = walk(whole, need), walk(part, need)
        assert long.peak().held == brief.peak().held
        assert (long.host.max(), long.kept.max()) == (brief.host.max(), brief.kept.max())


@pytest.mark.parametrize("kind", ["1f1b", "interleaved_1f1b", "dualpipe", "gpipe"])
def test_what_leaves_always_leaves_before_it_comes_back(kind: str) -> None:
    chunks = 2 if kind == "interleaved_1f1b" else 1
    for order in schedule(kind).order(4, chunks, 16):
        for (chunk, batch), trip in trips(order).items():
            forward = next(
                at
                for at, one in enumerate(order)
                if (one.kind, one.chunk, one.microbatch) == ("F", chunk, batch)
            )
            assert forward < trip.out < trip.back
            assert trip.out < trip.gone <= trip.back
            assert order[trip.back].kind in ("B", "I")


def test_the_last_stage_offloads_nothing_and_its_logits_stay() -> None:
    """Under 1F1B each of its forwards has its backward at once; interleaved, the head's chunk sends
    the input of its layers only."""
    assert not offloaded(schedule("1f1b").order(4, 1, 16)[3])
    head = LAYERS["head"]
    memory = MemorySpec(offload=("activations",))
    assert offload_bytes(
        [replace(one, policy=memory) for one in (LAYERS["moe"], head)]
    ) == kept_bytes(LAYERS["moe"], memory)
    assert offload_bytes([replace(LAYERS["moe"], policy=KEEP)]) == 0
    assert footprint([head], memory).kept.activations == 0


def test_named_parts_of_a_layer_go_to_the_host_and_no_others() -> None:
    """Inputs of the experts' two steps (Megatron-LM, `--offload-modules expert_fc1 moe_act`): a
    copy of a token per choice, and gate and up of each. All names together leave out what no module
    has: latents, what the router keeps, and the experts' own activation."""
    policy = MemorySpec(offload=("moe_up_input", "moe_swiglu_input"))
    rows = 4096 * 8
    assert sent_by_op(LAYERS["moe"], policy) == {
        "dispatch_sort": 2 * rows * 7168,
        "experts_up": 2 * rows * 2 * 2048,
    }
    assert not sent_by_op(LAYERS["dense"], policy)
    names = tuple(name for name in get_args(OffloadedActivations) if name != "activations")
    every = sent_by_op(LAYERS["moe"], MemorySpec(offload=names))
    kept = kept_by_op(LAYERS["moe"], KEEP)
    assert every.items() <= kept.items()
    assert all(sent_by_op(LAYERS["moe"], MemorySpec(offload=(name,))) for name in names)
    assert sum(every.values()) < sum(kept.values())
    assert sent_by_op(LAYERS["moe"], MemorySpec(offload=("activations", *names))) == kept


def test_what_is_computed_again_is_not_sent() -> None:
    policy = MemorySpec(recompute=("norms",), offload=("qkv_input", "moe_swiglu_input"))
    assert set(sent_by_op(LAYERS["moe"], policy)) == {"experts_up"}
    assert not sent_by_op(LAYERS["moe"], policy.model_copy(update={"recompute": ("full",)}))


def test_a_node_holds_the_sum_of_its_ranks() -> None:
    """Two stages of eight ranks: with tensor fastest each node of eight is one stage; with the
    pipeline fastest, half of each."""
    stages = [
        StageMemory(at, {}, 0.0, "", 0, host={"activations": size})
        for at, size in enumerate((10.0, 4.0))
    ]
    order = ("pipeline", "tensor", "context", "expert", "data")
    apart = lay_out(scenario(parallel={"pipeline": 2}))
    mixed = lay_out(scenario(parallel={"pipeline": 2, "order": order}))
    assert on_fullest_node(stages, apart) == {"activations": 80.0}
    assert on_fullest_node(stages, mixed) == {"activations": 56.0}


def test_a_plan_whose_host_is_too_small_does_not_fit_though_its_gpus_have_room() -> None:
    found = load("kimi-k2-256xh800", ["cluster.node.host.memory=200GB"])
    memory = plan(found).memory
    assert memory.fits_device
    assert not memory.fits_host
    assert not memory.fits


@pytest.mark.parametrize(
    "offload", [(), ("activations",), ("optimizer",), ("activations", "optimizer_dense")]
)
@pytest.mark.parametrize("update", ["device", "host"])
def test_larger_micro_batches_never_need_less_and_states_are_somewhere(
    offload: tuple[str, ...], update: str
) -> None:
    memory = {"offload": offload, "optimizer_update": update}
    peaks: list[tuple[float, float]] = []
    kept_states: set[float] = set()
    for micro_batch in (1, 2, 4):
        case = scenario(
            model={"moe": MOE},
            parallel={"pipeline": 4, "expert": 2, "micro_batch": micro_batch},
            memory=memory,
        )
        found = plan(case).memory
        peaks.append((found.peak.peak_bytes, found.host_per_node))
        states = [
            stage.categories[name] + stage.host.get(name, 0.0)
            for stage in found.stages
            for name in ("optimizer_dense", "optimizer_expert")
        ]
        kept_states.add(sum(states))
    assert peaks == sorted(peaks)
    assert len(kept_states) == 1


def test_zero_shards_and_offload_moves_the_shard() -> None:
    here, away = (
        plan(scenario(parallel={"zero": zero}, memory={"offload": ("optimizer",)})).memory.peak
        for zero in (0, 1)
    )
    assert here.host["optimizer_dense"] == 16 * away.host["optimizer_dense"]
    assert here.categories["optimizer_dense"] == away.categories["optimizer_dense"] == 0
