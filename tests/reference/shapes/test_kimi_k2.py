"""Kimi K2 on 2,048 ranks that are not there, 16 stages of 4 chunks, experts over 16 ranks: the
plan is what the trainer's code does.

Steps have 32 micro-batches per rank instead of 128: the first stage's warm-up and more, so that as
many forwards wait as in the whole step.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from reference.shapes.count import NAMED, Counts, by_category, count, held
from reference.shapes.count import flop as flop_of
from tests.reference.shapes.plans import (
    collectives,
    flop,
    kept,
    parameters,
    planned,
    run_of,
)
from twin.planning.types import Plan

pytestmark = pytest.mark.slow

STAGES = (0, 8, 15)
"""That of the embedding, one in the middle, and that of the head."""
LOG = "metrics"
REST = 0.005
"""Of the peak: all that has no name in a plan."""
PACKED = ("moe_up_input", "swiglu_input")


@cache
def plan() -> Plan:
    return planned("train.global_batch=4096seq")


@cache
def counted(stage: int) -> Counts:
    return count(run_of(plan()), stage * plan().mesh.data, plan().mesh.ranks)


def peak(stage: int) -> float:
    return plan().memory.stages[stage].peak_bytes


@pytest.mark.parametrize("stage", STAGES)
def test_collectives_and_messages_are_equal_in_count_and_bytes(stage: int) -> None:
    found = {
        (one.name, one.group): (one.count, one.bytes)
        for one in counted(stage).collectives
        if one.name != LOG
    }
    expected = collectives(plan(), stage)
    norm = "gradient_norm", "world"
    # Loss, squares and whether to stop: three float64, of which the plan says that they are few.
    assert found.pop(norm) == (1, 24)
    assert expected.pop(norm)[0] == 1
    assert found == expected


@pytest.mark.parametrize("stage", STAGES)
def test_flop_of_each_pass_are_equal(stage: int) -> None:
    made = {(one["kind"], one["chunk"]): one["flop"] for one in flop_of(counted(stage))}
    made.pop(("optimizer", -1))
    assert made == {
        (kind, chunk.index): number
        for chunk in plan().chunks
        if chunk.stage == stage
        for kind, number in flop(plan(), chunk).items()
        if number
    }


@pytest.mark.parametrize("stage", STAGES)
def test_every_parameter_and_state_is_equal_to_the_byte(stage: int) -> None:
    """But for the routers' biases: fp32 here, and counted as bf16 by the plan."""
    found, own = counted(stage), [one for one in plan().chunks if one.stage == stage]
    assert Counter(found.parameters.values()) == sum(
        (parameters(plan(), chunk) for chunk in own), Counter()
    )
    expected = plan().memory.stages[stage].categories
    for name in ("gradients", "optimizer_dense", "optimizer_expert"):
        assert found.standing[name].device == expected[name], name
    biases = sum(chunk.weights.buffers for chunk in own)
    assert sum(found.parameters.values()) == expected["parameters"] - 2 * biases


@pytest.mark.parametrize("stage", STAGES)
def test_every_kept_tensor_of_a_mebibyte_is_equal_to_the_byte(stage: int) -> None:
    for chunk in plan().chunks:
        if chunk.stage != stage:
            continue
        for layer, by_op in kept(plan(), chunk).items():
            found = [
                one.device + one.host
                for one in counted(stage).kept
                if one.chunk == chunk.index and one.layer == layer
            ]
            assert len(found) > len(by_op) > 0
            assert sorted(size for size in found if size >= NAMED) == sorted(
                size for size in by_op.values() if size >= NAMED
            )


@pytest.mark.parametrize("stage", STAGES)
def test_the_rest_is_below_half_a_percent_of_the_peak(stage: int) -> None:
    """What waits in tensors of less than a mebibyte, of all forwards that wait at once."""
    memory = plan().memory.stages[stage]
    small = Counter[int]()
    for one in counted(stage).kept:
        if one.device + one.host < NAMED:
            small[one.chunk] += one.device + one.host
    assert memory.in_flight * max(small.values()) < REST * peak(stage)


@pytest.mark.parametrize("stage", STAGES)
def test_the_fullest_moment_is_the_plans(stage: int) -> None:
    """The plan keeps what is packed in FP8 beside what is unpacked of it until a backward is over;
    the trainer lets go of it layer by layer, and is past it when it is fullest. With these bytes,
    known to the byte, the two are half a percent apart, temporaries of kernels and all."""
    every = held(counted(stage))
    found, expected = by_category(every), plan().memory.stages[stage].categories
    for name in ("gradients", "optimizer_dense", "optimizer_expert"):
        assert found[name] == expected[name]
    packed = sum(
        one.device + one.host
        for one in counted(stage).kept
        if one.chunk == _last(stage) and one.name in PACKED
    )
    total = sum(one.bytes for one in every) + packed
    assert total == pytest.approx(peak(stage), rel=REST)


def _last(stage: int) -> int:
    """The chunk whose backward runs first."""
    return max(one.index for one in plan().chunks if one.stage == stage)
