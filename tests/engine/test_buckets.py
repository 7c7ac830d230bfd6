"""Gradients reduced, and new weights gathered, by bucket beside the passes of a first stage."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.engine.scenarios import dense, moe
from twin.engine import lower, plan, simulate
from twin.engine.buckets import gathered, reduced
from twin.engine.cost_model import CostModel, length_alone
from twin.engine.passes import backward_pass, forward_pass
from twin.engine.program import COMPUTE, DATA
from twin.engine.trace import Trace

pytestmark = pytest.mark.usefixtures("each_player")

WHOLE = "parallel.bucket_size=1000000000"
APART = "parallel.overlap_grad_reduce=false"
GATHER = "parallel.overlap_param_gather=true"
ZERO = "parallel.zero=1"
STAGES = [(1, 8), (2, 4), (4, 2)]
"""Stages and tensor ranks on two nodes."""


def made(*more: str, stages: int = 1, tensor: int = 8, virtual: int = 1) -> Trace:
    return simulate(lower(plan(dense(2, stages, virtual, tensor, *more))))


def ends(trace: Trace, stream: int, name: str = "") -> list[tuple[int, int]]:
    """Starts and ends of the first role's spans on a stream."""
    own = (trace.spans.role == 0) & (trace.spans.stream == stream)
    if name:
        own &= trace.spans.name == trace.names.index(name)
    return [*zip(trace.spans.start[own].tolist(), trace.spans.end[own].tolist(), strict=True)]


@pytest.mark.parametrize(("stages", "tensor"), STAGES)
@pytest.mark.parametrize("more", [("parallel.zero=0",), (ZERO,), (ZERO, GATHER)])
def test_overlap_is_never_slower_and_never_free(
    stages: int, tensor: int, more: tuple[str, ...]
) -> None:
    """Not faster than kernels, not faster than transfers; the last bucket stays exposed, but the
    same bytes travel."""
    beside, apart = (made(*more, *flag, stages=stages, tensor=tensor) for flag in ((), (APART,)))
    kind = "all_reduce" if "parallel.zero=0" in more else "reduce_scatter"
    reductions = ends(beside, DATA, f"{kind}_gradients")
    last_kernel = max(end for _, end in ends(beside, COMPUTE, "backward"))
    assert len(reductions) > 1
    assert beside.step_ns < apart.step_ns
    assert beside.link_bytes == pytest.approx(apart.link_bytes)
    assert reductions[-1][0] >= last_kernel > reductions[0][0]
    transfers = sum(end - start for start, end in ends(beside, DATA))
    busy = sum(end - start for start, end in ends(beside, COMPUTE))
    assert beside.step_ns >= max(transfers, busy + reductions[-1][1] - reductions[-1][0])
    assert all(sum(row.values()) == beside.step_ns for row in beside.breakdown_ns)


@pytest.mark.parametrize("more", [("parallel.zero=0",), (ZERO,)])
def test_one_bucket_on_one_stage_is_no_overlap(more: tuple[str, ...]) -> None:
    assert made(*more, WHOLE).step_ns == made(*more, APART).step_ns


def test_without_the_flag_gradients_wait_for_all_chunks_of_a_rank() -> None:
    layout = {"stages": 4, "tensor": 2, "virtual": 3}
    beside, apart = (made(ZERO, *flag, **layout) for flag in ((), (APART,)))
    name, last = "reduce_scatter_gradients", "backward"
    early, late = (ends(one, DATA, name)[0][0] for one in (beside, apart))
    assert early < max(end for _, end in ends(beside, COMPUTE, last))
    assert late >= max(end for _, end in ends(apart, COMPUTE, last))
    assert beside.step_ns <= apart.step_ns


@pytest.mark.parametrize("more", [(), (GATHER,)])
@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1"])
def test_a_step_that_repeats_is_the_whole_one(schedule: str, more: tuple[str, ...]) -> None:
    flags = (ZERO, f"parallel.schedule={schedule}", *more)
    for stages, tensor, batch in ((1, 8, 8), (1, 8, 256), (2, 4, 32)):
        program = lower(plan(dense(2, stages, 1, tensor, *flags, f"train.global_batch={batch}seq")))
        found, whole = simulate(program), simulate(program, extrapolate=False)
        assert found.link_bytes == pytest.approx(whole.link_bytes)
        assert found.step_ns == whole.step_ns


def test_by_hand() -> None:
    """Tensor ranks meet on NVLink, replicas on NICs: neither slows the other. So each reduction
    starts when the kernels of its bucket and the reduction before it have ended."""
    one = plan(dense(2, 1, 1, 8, ZERO, "parallel.bucket_size=120000000", "train.global_batch=2seq"))
    program, costs, (chunk,) = lower(one), CostModel.of(one), one.chunks
    sizes = reduced(one, chunk)
    places = [*sorted(sizes), len(chunk.layers)]
    layers = [chunk.layers[begin:end] for begin, end in pairwise(places)]
    assert [len(own) for own in layers] == [1, 3, 3, 3, 4]
    forward = length_alone(forward_pass(chunk.layers, costs), program)
    now = through = forward
    for own, begin in reversed([*zip(layers, places, strict=False)]):
        now += length_alone(backward_pass(own, costs), program)
        flow, delay = costs.collective("reduce_scatter", sizes[begin]["data"], "data")
        bytes_ns = flow.nic_bytes / program.capacity["nic"]
        through = max(now, through) + delay + bytes_ns
    found = ends(simulate(program), DATA, "reduce_scatter_gradients")
    assert len(found) == len(layers)
    assert found[-1][1] == pytest.approx(through, abs=100)


def test_weights_are_gathered_one_bucket_ahead() -> None:
    """A gather is launched when the kernels before its predecessor's bucket are there; its own
    bucket waits for it."""
    one = plan(dense(2, 1, 1, 8, ZERO, GATHER))
    first = lower(one).ends["F", 0]
    gathers = [place for place, step in enumerate(first) if step.stream == DATA]
    assert len(gathers) == len(gathered(one, one.chunks[0])) > 2
    for before, gather in pairwise(gathers):
        assert all(place < before for place in first[gather].after)
        assert gather in next(step for step in first[gather:] if step.stream == COMPUTE).after


@pytest.mark.parametrize("shape", [(8, 4, 2, 16), (8, 1, 1, 8)])
def test_only_a_first_stage_of_one_chunk_has_buckets(shape: tuple[int, int, int, int]) -> None:
    one = plan(moe(*shape, GATHER))
    kinds = {kind for kind, _ in lower(one).ends}
    assert kinds == ({"F", "B"} if shape[2] == 1 else set())


def test_buckets_need_no_memory_of_their_own() -> None:
    peaks = [
        plan(dense(2, 1, 1, 8, ZERO, *flag)).memory.stages for flag in ((), (APART,), (GATHER,))
    ]
    assert peaks[0] == peaks[1] == peaks[2]
