"""Garbage collection on the hosts: CPython's own collector as the oracle, laws, small cases."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.scenarios import dense, moe
from twin.engine import lower, plan, simulate
from twin.engine.collector import full_collections, kept_objects, waits
from twin.engine.cost_model import CostModel
from twin.engine.host import COLLECTED
from twin.planning.types import Plan

STACK = ("software=megatron-core", "calibration=a100-megatron")
PAUSE = 500_000 * 400e-9 * 1.3
"""Of that stack, in seconds; CPUs beside A100 take 1.3 times as long."""


def step(made: Plan) -> int:
    return simulate(lower(made)).step_ns


def small(*more: str) -> Plan:
    return plan(dense(2, 2, 1, 2, *STACK, *more))


@pytest.fixture
def young_process() -> Iterator[None]:
    """A collector that sees only what a test makes."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.skipif(gc.get_threshold() != (700, 10, 10), reason="another collector")
@pytest.mark.usefixtures("young_process")
def test_full_collections_come_as_often_as_in_cpython() -> None:
    """Passes that keep 3,600 lists each until they end, beside 100,000 old ones: the youngest are
    looked at five times in a pass, the middle generation at every part of one in turn."""
    old = [[] for _ in range(100_000)]
    gc.collect()
    full = [0]

    def count(phase: str, info: dict[str, int]) -> None:
        full[0] += phase == "start" and info["generation"] == 2

    gc.callbacks.append(count)
    passes = 400
    for _ in range(passes):
        kept = [[] for _ in range(3600)]
        del kept
    gc.callbacks.remove(count)
    assert full[0] == pytest.approx(passes * full_collections(3600, 1800, len(old)), rel=0.25)


@pytest.mark.parametrize(
    ("kept", "objects", "counted"), [(16 * 194, 380_377, 4 / 600), (32 * 194, 383_644, 7 / 300)]
)
def test_a_llama_under_checkpoints_collects_as_often_as_counted(kept, objects, counted) -> None:
    """PyTorch 2.13, Transformers 5.24, CPython 3.11: 16 and 32 layers, 600 and 300 passes."""
    assert full_collections(kept, kept / 2, objects) == pytest.approx(counted, rel=0.12)


def test_few_old_objects_leave_the_thresholds_alone() -> None:
    """Every 12 x 12 x 700 objects."""
    assert full_collections(700, 7000, 1000) == pytest.approx(1 / 144)


@given(st.floats(0, 3), st.integers(1, 20_000))
def test_waits_grow_with_hosts_up_to_one_for_each_collection(each: float, hosts: int) -> None:
    assert waits(each, 1) == pytest.approx(each)
    assert waits(each, hosts) <= waits(each, 2 * hosts) <= max(1.0, each)


def test_two_hosts_that_collect_every_fifth_step() -> None:
    """Neither in 16 of 25 steps."""
    assert waits(0.2, 2) == pytest.approx(9 / 25)


def test_collections_of_all_ranks_together_cost_their_share_of_the_pause() -> None:
    never = step(small("train.gc_interval=0"))
    assert step(small("train.gc_interval=50")) - never == round(PAUSE / 50 * 1e9)
    row = simulate(lower(small("train.gc_interval=50"))).breakdown_ns[0]
    bare = simulate(lower(small("train.gc_interval=0"))).breakdown_ns[0]
    assert row["host"] - bare["host"] == round(PAUSE / 50 * 1e9)


def test_without_collections_the_program_is_that_without_a_collector() -> None:
    none = small("software.host.collector=null")
    assert lower(small("train.gc_interval=0")).finish == lower(none).finish
    assert lower(small("software.host.collector.objects=0")).finish == lower(none).finish


def waited(made: Plan) -> float:
    """Seconds that a step waits for collections."""
    steps = lower(made).finish[0]
    return sum(one.duration_ns for one in steps if one.name == COLLECTED) / 1e9


def test_more_data_ranks_wait_for_more_collections_and_never_for_more_than_a_pause() -> None:
    few, many = (
        waited(plan(dense(nodes, 2, 1, 2, *STACK, "software.host.waits=[messages]")))
        for nodes in (2, 16)
    )
    assert 0 < few < many <= PAUSE


def test_a_host_hides_pauses_that_are_shorter_than_its_lead() -> None:
    """A backward of these layers takes tens of milliseconds; only the first forward has none
    before it. A host that asks for each message has no lead."""
    alone = ("parallel.pipeline=1", "train.global_batch=32seq", "software.host.collector.objects=")
    short, long = (small(*alone[:2], alone[2] + objects) for objects in ("1000", "3000000"))
    assert waited(short) < 1e-9 < waited(long)
    asks = small("software.host.collector.objects=1000", "software.host.waits=[messages]")
    assert waited(asks) > 0


def test_behind_a_long_backward_only_the_first_forward_of_a_step_shows_a_pause() -> None:
    """A pause between half a forward and a backward: twice as many passes bring twice as many, of
    which half as large a share is seen."""
    sets = ("parallel.pipeline=1", "software.host.collector.objects=100000")
    once, twice = (small(*sets, f"train.global_batch={batch}seq") for batch in (32, 64))
    assert waited(twice) == pytest.approx(waited(once), rel=0.1)
    assert waited(once) > 1e-6


def test_what_is_computed_again_and_what_graphs_replay_keeps_less() -> None:
    def kept(*more: str) -> float:
        made = plan(moe(2, 1, 1, 2, "software=megatron-core", *more))
        return kept_objects(made.chunks[0].layers, CostModel.of(made).host)

    whole = kept("memory.recompute=[]")
    assert kept("memory.recompute=[full]") < 0.5 * whole
    assert kept("memory.recompute=[]", "software.host.graphed=[all]") < 0.1 * whole
