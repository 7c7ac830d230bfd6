"""Pairs of passes in the light model: worked out by hand, and against the engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.programs import by_hand
from tests.engine.test_overlap import CAPACITY, blocks, passes
from twin.engine import lower, plan
from twin.engine.observed import observed
from twin.engine.overlap import _stream_ends, length_ns, paired
from twin.engine.program import COMPUTE, StageMessage
from twin.engine.simulate import simulate, step_ns
from twin.loading import load
from twin.planning.compile import SplitRanking
from twin.planning.layer_times import PAIRED, PASSES, STOPS, WAITED
from twin.planning.pair_times import EXPERT, GATHER, KERNELS, REDUCE, Gpu, Piece, pair_times
from twin.planning.step_length import LayerCost, StepCosts, StepLength
from twin.schedules.dualpipe import DualPipe
from twin.schedules.interleaved import Interleaved

GPU = Gpu(100, 0.0)
PAIRS = Interleaved(extra_warmup=1, overlap_all_to_all=True)


def pieces(*times: float, sms: int = 0) -> tuple[Piece, ...]:
    """Kernels and exchanges in turn (ns)."""
    work = KERNELS, EXPERT
    return tuple(Piece(work[i % 2], one / 1e9, sms=sms * (i % 2)) for i, one in enumerate(times))


def test_blocks_of_two_passes_take_turns() -> None:
    """B 0-10, F 10-20 under B's exchange, B 20-30 under F's, F 30-40."""
    one = [pieces(10, 10, 10)]
    assert pair_times(one, one, GPU) == (40, 10, 40, 30)
    # F fills the exchange of B, which is waited for no more; the forward has its result before.
    assert pair_times([pieces(30)], [pieces(5, 30, 5)], GPU) == (40, 5, 35, 40)
    # Nothing hides: the backward has its result before the forward begins.
    assert pair_times([pieces(30), pieces(2)], [pieces(20)], GPU) == (52, 20, 52, 20)
    assert pair_times([], [], GPU) == (0, 0, 0, 0)


def test_what_the_host_waits_for_hides_under_nothing() -> None:
    kernels, exchange, last = pieces(10, 20, 5)
    asked = (kernels, exchange._replace(asked=True), last)
    assert pair_times([asked], [pieces(30)], GPU) == (65, 30, 65, 30)


def test_kernels_are_slower_beside_exchanges() -> None:
    """Half of the SMs are held for 20: of a kernel of 30 that SMs bound, 10 are done by then; in a
    contended half of that."""
    backward, bound = pieces(10, 20, 0, sms=50), Piece(KERNELS, 30e-9, bound=30e-9)
    assert pair_times([(bound,)], [backward], GPU).length == 10 + 20 + 20
    assert pair_times([(bound,)], [backward], Gpu(100, 0.5)).length == 10 + 20 + 25
    assert pair_times([(bound._replace(bound=0.0),)], [backward], GPU).length == 40


def test_gathers_and_reductions_of_layers() -> None:
    """Two layers forward: a gather of 10 that is waited for, one that hides, kernels of 20 each.
    Behind each layer backward (20) a reduction of 30, of which the third layer waits for the
    first."""
    forward = [(Piece(GATHER, 10e-9), Piece(KERNELS, 20e-9))] * 2
    backward = [(Piece(KERNELS, 20e-9), Piece(REDUCE, 30e-9))] * 3
    assert pair_times(forward, [], GPU).forward == 10 + 20 + 20
    assert pair_times([], backward, GPU).backward == 20 + 30 + 20


@given(passes, passes)
def test_a_pair_is_as_long_as_the_engines(forward: list[int], backward: list[int]) -> None:
    pair = paired(blocks("forward", *forward), blocks("backward", *backward), CAPACITY, 0.0)
    light = pair_times([pieces(*forward)], [pieces(*backward)], GPU)
    assert max(light) == length_ns(pair.steps, CAPACITY)


def cost(forward: list[int], backward: list[int]) -> LayerCost:
    """A layer whose passes are kernels and exchanges in turn (ns)."""
    ways = {"F": forward, "B": backward, "I": backward}
    rows: list[tuple[float, ...]] = []
    for kind in PASSES:
        row = [0.0] * (STOPS + 1)
        row[WAITED], row[PAIRED] = (sum(ways.get(kind, [])[at::2]) / 1e9 for at in (0, 1))
        rows.append(tuple(row))
    own = tuple(pieces(*ways.get(kind, [])) for kind in PASSES)
    return LayerCost(tuple(rows), 0.0, 0.0, 0.0, own)


LONG = st.lists(st.integers(40, 90), min_size=1, max_size=9).map(
    lambda times: times if len(times) % 2 else [*times, 1]
)


@settings(max_examples=40)
@given(st.data(), st.sampled_from([2, 3, 4]), st.integers(1, 3), st.sampled_from([0, 20, 40]))
def test_a_step_of_pairs_is_as_long_as_the_engines(data, stages, rounds, message) -> None:
    """Passes of a pair begin and end apart. Exchanges also wait for those of the turn before, which
    is left out."""
    schedule = data.draw(st.sampled_from([PAIRS, *[DualPipe()] * (stages % 2 == 0)]))
    virtual = 2 if schedule is PAIRS else 1
    shape = stages, virtual, 2 * rounds * stages
    parts = schedule.chunk_map(stages, virtual).part_of
    own = [(data.draw(LONG), data.draw(LONG)) for _ in range(max(parts) + 1)]
    program = by_hand(
        *(schedule, shape),
        lambda chunk: blocks("forward", *own[parts[chunk]][0]),
        lambda chunk: blocks("backward", *own[parts[chunk]][1]),
        StageMessage(0.0, "nic", message),
    )
    nothing, late = cost([], []), message / 1e9
    layers = tuple(cost(*one) for one in own)
    costs = StepCosts(nothing, layers, (nothing,), 0.0, late, 0.0, 0.0, (False, False), GPU)
    light = StepLength([costs], schedule, shape)([(1,) * len(own)])
    assert light == [pytest.approx(simulate(program).step_ns, rel=0.05)]


def test_events_do_not_count_a_pairs_wait_for_its_forward() -> None:
    """Forwards of 10, backwards of 20; messages of 100 come late in the middle of pairs."""
    program = by_hand(
        *(PAIRS, (2, 2, 8)),
        lambda _: blocks("forward", 10),
        lambda _: blocks("backward", 20),
        StageMessage(0.0, "nic", 100),
    )
    _, (graph, played, _) = step_ns(program)
    turns = observed(program, graph, played).turns
    assert {len(turn): length for turn, length in turns.items() if len(turn) > 1} == {2: 30.0}
    assert set(turns.values()) == {10.0, 20.0, 30.0}


@pytest.mark.parametrize(
    "sets",
    [
        ["parallel.dispatcher=deepep"],
        ["memory.recompute=[moe_down]"],
        ["memory.recompute=[full]", "parallel.zero=3"],
        ["memory.recompute=[]", "parallel.tensor=2", "parallel.expert=2"],
    ],
)
def test_pairs_of_a_layout_are_as_long_as_the_engines(tmp_path: Path, sets: list[str]) -> None:
    """At full speed."""
    file = tmp_path / "small.yaml"
    file.write_text(
        "schema: 1\nextends: kimi-k2-256xh800\nmodel: {layers: 12, moe: {experts: 64}}\n"
        "cluster: {nodes: 4}\nparallel: {pipeline: 4, virtual: 2, expert: 8}\n"
        "train: {global_batch: 64seq}\nsoftware: null\n"
        "calibration: {expert_sms: 0, collective_sms: 0}\n"
    )
    pairs = "parallel.schedule={kind: interleaved_1f1b, extra_warmup: 1, overlap_all_to_all: true}"
    scenario = load(file, [pairs, "parallel.layers=[1, 2, 1, 2, 1, 2, 1, 2]", *sets])
    made, model = plan(scenario), SplitRanking(scenario)
    light, program = model._light, lower(made)
    step = light.steps[-1]
    split = np.array([made.layers_per_part])
    turns = light._turns(step, light._of_parts(split, model._places))
    for kind, (lasts,) in zip(step.kinds, turns.durations.tolist(), strict=True):
        if len(kind) > 1:
            both = [program.template(way, chunk, False) for way, chunk in kind]
            pair = paired(both[0], both[1], program.capacity, 0.0, program.beside)
            ends = _stream_ends(pair.steps, program.capacity)
            assert lasts == pytest.approx(ends[COMPUTE], rel=0.01)
