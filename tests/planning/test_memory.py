"""The ledger: small stages counted by hand, and laws over schedules and layers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planning.examples import block, chunks_of, op, scenario, schedule
from twin.arch.ops import Shape, Weights, Work
from twin.arch.recompute import ATTENTION_CORE
from twin.arch.stack import layers
from twin.engine import plan
from twin.loading import load
from twin.planning.footprint import (
    Footprint,
    Held,
    footprint,
    footprints,
    kept_bytes,
    late_bytes,
    spared,
)
from twin.planning.memory import (
    ledger,
    moment,
)
from twin.planning.mesh import lay_out
from twin.planning.walk import enough_microbatches, walk
from twin.schedules import KNOWN
from twin.schedules.base import Action
from twin.spec.cluster import ReserveEntry
from twin.spec.memory import MemorySpec

CORE = min(ATTENTION_CORE)

KEEP, FULL = MemorySpec(), MemorySpec(recompute=("full",))

CORE_AGAIN = MemorySpec(recompute=("attention_core",))

BLOCK = block(
    op("qkv", saved=30, output=30), op(CORE, saved=100, output=10), op("ffn", saved=40, output=20)
)


def test_a_layer_keeps_what_its_policy_says() -> None:
    assert kept_bytes(BLOCK, KEEP) == 170
    assert kept_bytes(BLOCK, CORE_AGAIN) == 70
    assert kept_bytes(BLOCK, FULL) == 10


def test_embedding_and_head_are_never_recomputed() -> None:
    head = replace(BLOCK, kind="head")
    assert kept_bytes(head, FULL) == 170
    assert footprint([head], FULL).kept.logits == 170


def test_a_fully_recomputed_layer_comes_back_for_its_backward_pass() -> None:
    """Two layers of 170 saved, 10 kept. At the second's backward both inputs (20) are alive, the
    second is recomputed (160 beside its input), and gradients run: of the layer's input (10) and of
    the widest pair of neighbours (30 + 10)."""
    need = footprint([BLOCK, BLOCK], FULL)
    assert need.kept.total == 20
    assert need.backward.activations == 20
    assert need.backward.working == 160 + 10 + 40


def test_the_backward_pass_of_a_mixed_chunk_is_fullest_where_the_sum_is() -> None:
    """A small last layer: the peak is at the first, wide one, when the last one's input is already
    free."""
    small = block(op("small", saved=1, output=1), input_bytes=1)
    need = footprint([BLOCK, small], FULL)
    assert need.backward.activations == 10
    assert need.backward.working == 160 + 10 + 40


def test_one_f_one_b_keeps_one_microbatch_per_later_stage_and_its_own() -> None:
    """4 stages, 8 micro-batches: 4, 3, 2, 1 in flight (Narayanan et al. 2021, section 2.2.1)."""
    need = {stage: footprint([BLOCK], KEEP) for stage in range(4)}
    peaks = [walk(order, need).peak() for order in schedule("1f1b").order(4, 1, 8)]
    assert [peak.in_flight for peak in peaks] == [4, 3, 2, 1]
    assert [peak.held.activations for peak in peaks] == [680, 510, 340, 170]
    assert [(peak.action.kind, peak.action.microbatch) for peak in peaks] == [("B", 0)] * 4


def test_gpipe_keeps_every_microbatch() -> None:
    need = {stage: footprint([BLOCK], KEEP) for stage in range(4)}
    peaks = [walk(order, need).peak() for order in schedule("gpipe").order(4, 1, 8)]
    assert [peak.in_flight for peak in peaks] == [8, 8, 8, 8]


def test_interleaving_keeps_korthikanti_equation_more() -> None:
    """First of 4 stages with 3 chunks: L (1 + (p - 1) / (p v)) layers' worth, which is p v + p - 1
    = 15 chunks (Korthikanti et al. 2022, section 4.2.3)."""
    need = {chunk: footprint([BLOCK], KEEP) for chunk in range(12)}
    first = walk(schedule("interleaved_1f1b").order(4, 3, 8)[0], need).peak()
    assert first.in_flight == 15


def test_between_the_halves_of_a_backward_wait_inputs_and_gradients_of_ops_with_weights() -> None:
    """170 kept by each forward; after I, 5 of the input and 30 of the output's gradient."""
    matrix = replace(BLOCK.items[-1], weight=Work(1.0, 1.0, 1), output=30.0, late=35.0)
    need = {0: footprint([replace(BLOCK, items=(*BLOCK.items[:-1], matrix))], KEEP)}
    actions = [Action("F", 0, 0), Action("I", 0, 0), Action("F", 0, 1), Action("W", 0, 0)]
    assert need[0].late.total == 35
    peak = walk(actions, need).peak()
    assert (peak.in_flight, peak.late) == (1, 1)
    assert peak.held.total == 35 + need[0].forward.total


def test_a_pair_needs_the_working_sets_of_both_passes() -> None:
    need = {0: footprint([BLOCK], KEEP)}
    apart = [Action("F", 0, 0), Action("F", 0, 1), Action("B", 0, 0)]
    pair = [Action("F", 0, 0), Action("F", 0, 1, paired=True), Action("B", 0, 0)]
    more = walk(pair, need).peak().held.total - walk(apart, need).peak().held.total
    assert more == need[0].forward.total - need[0].kept.total > 0


def test_in_a_pair_one_pass_fills_as_the_other_empties() -> None:
    """Of three layers that keep 170 each, four are there at a time: the backward's that has not
    ended, and the forward's that has begun."""
    need = {0: footprint([BLOCK] * 3, KEEP), 1: footprint([BLOCK], KEEP)}
    pair = [Action("F", 0, 0), Action("F", 0, 1, paired=True), Action("B", 0, 0)]
    kept = need[0].kept.total / 3
    assert spared(need[0], need[0]).total == pytest.approx(2 * kept)
    whole = 6 * kept + need[0].forward.total - 3 * kept + need[0].backward.total - 3 * kept
    assert walk(pair, need).peak().held.total == pytest.approx(whole - 2 * kept)
    assert spared(need[1], need[1]).total == 0
    assert spared(need[0], need[1]).total == pytest.approx(kept)


def test_logits_of_a_pair_are_counted_once_at_most() -> None:
    """The forward has no logits yet as it begins, the backward none any more as it ends: four
    layers of 1 are there, and the working sets of both passes."""
    head = Footprint(
        kept=Held(2, 4),
        late=Held(),
        forward=Held(2, 0, 5),
        backward=Held(2, 0, 6),
        input_backward=Held(2, 0, 6),
        layers=(Held(1), Held(1), Held(0, 4)),
    )
    pair = [Action("F", 0, 0), Action("F", 0, 1, paired=True), Action("B", 0, 0)]
    assert walk(pair, {0: head}).peak().held == Held(4, 0, 11)


def test_a_stage_without_actions_has_no_peak() -> None:
    with pytest.raises(ValueError, match="no peak"):
        walk([], {})


shapes = st.sampled_from(
    [
        (kind, stages, chunks, microbatches)
        for kind in KNOWN
        for stages in (1, 2, 3, 4, 8)
        for chunks in (1, 2, 3, 4)
        for microbatches in (1, 2, 5, 8, 12, 24, 40, 64)
        if not schedule(kind).problems(stages, chunks, microbatches)
    ]
)


@given(shapes, st.data())
def test_the_short_walk_finds_the_peak_of_the_whole_walk(
    shape: tuple[str, int, int, int], data: st.DataObject
) -> None:
    """Whatever the chunks weigh, and for every schedule there is: same bytes, same action, same in
    flight."""
    kind, stages, chunks, microbatches = shape
    plays = schedule(kind)
    sizes = st.integers(0, 100)
    need = {
        chunk: footprint(
            [block(op("a", data.draw(sizes), data.draw(sizes)), input_bytes=data.draw(sizes))], KEEP
        )
        for chunk in range(len(plays.chunk_map(stages, chunks).part_of))
    }
    short = enough_microbatches(plays, stages, chunks, microbatches)
    assert short <= microbatches
    whole_walk = [walk(order, need).peak() for order in plays.order(stages, chunks, microbatches)]
    short_walk = [walk(order, need).peak() for order in plays.order(stages, chunks, short)]
    assert short_walk == whole_walk


def test_the_short_walk_is_short() -> None:
    interleaved = schedule("interleaved_1f1b")
    assert enough_microbatches(interleaved, 16, 4, 1024) <= 64


whole = shapes.filter(lambda shape: shape[0] in ("1f1b", "gpipe", "interleaved_1f1b"))


@given(whole, whole)
def test_the_peak_grows_with_the_microbatches_in_flight(
    one: tuple[str, int, int, int], other: tuple[str, int, int, int]
) -> None:
    """Chunks of one size: more alive, more bytes; as many alive, as many bytes."""
    peaks = [
        walk(
            order, {chunk: footprint([BLOCK], KEEP) for chunk in range(2 * stages * chunks)}
        ).peak()
        for kind, stages, chunks, microbatches in (one, other)
        for order in schedule(kind).order(stages, chunks, microbatches)
    ]
    by_flight = sorted(peaks, key=lambda peak: peak.in_flight)
    for less, more in pairwise(by_flight):
        assert (less.held.total < more.held.total) == (less.in_flight < more.in_flight)


weights = st.integers(0, 10**9)


@given(
    st.lists(weights, min_size=4, max_size=4), st.sampled_from([(), ("full",), ("attention_core",)])
)
def test_categories_sum_to_the_peak(counts: list[int], recompute: tuple[str, ...]) -> None:
    case = scenario(parallel={"pipeline": 4}, memory={"recompute": recompute})
    layers = [[replace(BLOCK, weights=Weights(replicated=count))] for count in counts]
    found = ledger(case, lay_out(case), chunks_of(layers, 4), 16)
    for stage in found.stages:
        assert sum(stage.categories.values()) == stage.peak_bytes
    assert found.peak.peak_bytes == max(stage.peak_bytes for stage in found.stages)


def test_the_budget_is_what_the_reserve_leaves() -> None:
    case = scenario()
    found = ledger(case, lay_out(case), chunks_of([[BLOCK]], 1), 4)
    assert found.reserve == {"context": 2.0**30, "nccl": 2.0**31}
    assert found.budget == 77 * 2.0**30


def test_reserves_of_one_name_add_up() -> None:
    case = scenario()
    node = case.cluster.node
    reserve = (*node.gpu.reserve, ReserveEntry(name="nccl", bytes="4GiB"))  # type: ignore[arg-type]
    gpu = node.gpu.model_copy(update={"reserve": reserve})
    cluster = case.cluster.model_copy(update={"node": node.model_copy(update={"gpu": gpu})})
    found = ledger(
        case.model_copy(update={"cluster": cluster}), lay_out(case), chunks_of([[BLOCK]], 1), 4
    )
    assert found.reserve == {"context": 2.0**30, "nccl": 6 * 2.0**30}
    assert found.budget == 73 * 2.0**30


def test_the_peak_names_its_moment() -> None:
    case = scenario(parallel={"pipeline": 2})
    found = ledger(case, lay_out(case), chunks_of([[BLOCK], [BLOCK]], 2), 8)
    assert [stage.peak_moment for stage in found.stages] == [
        "backward of micro-batch 0, chunk 0",
        "backward of micro-batch 0, chunk 1",
    ]


def test_what_waits_for_a_gpt_layers_weights_is_32_sbh() -> None:
    """Inputs 2 + 2 + 2 + 8 and output gradients 6 + 2 + 8 + 2, in bytes per token and width: Qi et
    al. 2023, arXiv:2401.10241, table 1, M_W."""
    model = load("gpt-175b-64xa100-full").model
    block = layers(model, Shape(sequences=1, sequence=2048))[1]
    assert late_bytes(block) == 32 * 2048 * model.hidden


def test_zb_h2_keeps_nearly_twice_what_the_first_stage_of_1f1b_keeps() -> None:
    """Qi et al. 2023, table 2: p M_B and (2 p - 1) M_B."""
    sets = ["parallel.virtual=1", "memory.recompute=[]", f"parallel.layers={[12] * 8}"]
    first = [
        plan(load("gpt-175b-64xa100-full", [*sets, kind])).memory.stages[0]
        for kind in ("parallel.schedule=1f1b", "parallel.schedule=zb_h2")
    ]
    assert [stage.in_flight for stage in first] == [8, 15]
    once, twice = (stage.categories["activations"] for stage in first)
    assert twice == pytest.approx(once * 15 / 8, rel=0.01)


@pytest.mark.parametrize("schedule", ["dualpipe", "zb_h1", "zb_h2", "1f1b"])
def test_the_moment_of_the_peak_is_that_of_the_whole_step(schedule: str) -> None:
    """Also where it is behind the periods that the walk leaves out."""
    made = load(
        "kimi-k2-2048xh800",
        ["parallel.virtual=1", "parallel.pipeline=8", f"parallel.schedule={schedule}"],
    )
    resolved = plan(made)
    needs = footprints(resolved.chunks)
    orders = made.parallel.schedule.order(8, 1, resolved.microbatches)
    for stage, order in zip(resolved.memory.stages, orders, strict=True):
        assert stage.peak_moment == moment(walk(order, needs).peak().action)
