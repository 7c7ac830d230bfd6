"""An engine over users and context: equal to the pace of its requests, never above the roofline,
with laws over users, and ended by memory where memory ends."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.inference.engines import made
from twin.arch.inference import decode_flop, with_heads
from twin.inference.curve import CONTEXTS, WRITTEN, Curve, Request, curve, most, pace, sizes
from twin.inference.engine import Engine
from twin.inference.kv_capacity import cached_bytes, room
from twin.loading import load_part

FP8_PEAK, BANDWIDTH = 1979e12, 3.35e12
"""H800, dense; of NVIDIA's datasheet."""
ENGINES = [
    {"redundant_experts": 32},
    {"redundant_experts": 32, "two_batches": False, "cache": "fp8"},
    {"node": "h200-8gpu", "gpus": 64, "tensor": 8, "batch": 64},
    {"model": "llama3-70b", "gpus": 8, "tensor": 4, "precision": "bf16"},
]


@pytest.fixture(scope="module", params=ENGINES, ids=str)
def server(request: pytest.FixtureRequest) -> Engine:
    return made(**request.param)


@pytest.fixture(scope="module")
def own(server: Engine) -> Curve:
    return curve(server)


def test_every_point_is_the_pace_of_its_requests(server: Engine, own: Curve) -> None:
    for at in own.contexts:
        assert at.points
        for one in at.points:
            found = pace(server, Request(at.context - WRITTEN, 0, WRITTEN), one.sequences)
            assert one.pace == found
            assert one.users == one.sequences * server.groups
            assert one.per_user == 1 / found.step.seconds
            gpus = server.spec.gpus
            assert one.per_gpu * gpus == pytest.approx(one.per_user * one.users)
            # Requests per second of all groups, times what each writes.
            sustained = server.groups * WRITTEN / found.seconds
            assert one.with_prompts * gpus == pytest.approx(sustained)
            assert one.with_prompts < one.per_gpu


def test_parts_of_a_step_sum_to_it_and_split_only_what_memory_takes(own: Curve) -> None:
    for at in own.contexts:
        for one in at.points:
            assert sum(one.parts.values()) == pytest.approx(one.step, rel=1e-12)
            read = one.parts["weights"] + one.parts["cache"] + one.parts["traffic"]
            assert read == pytest.approx(one.pace.step.causes["memory"], rel=1e-12)


def test_each_user_gets_less_and_each_gpu_does_more_with_every_doubling(own: Curve) -> None:
    for at in own.contexts:
        doubled = [one for one in at.points if one.sequences & (one.sequences - 1) == 0]
        for few, many in pairwise(doubled):
            assert many.per_user < few.per_user
            assert many.per_gpu > few.per_gpu


def test_longer_contexts_are_slower_for_as_many_users(own: Curve) -> None:
    short, *longer = own.contexts
    for at in longer:
        for one in at.points:
            same = [other for other in short.points if other.sequences == one.sequences]
            assert all(one.step > other.step for other in same)


def test_memory_has_room_for_the_most_and_for_no_more(server: Engine, own: Curve) -> None:
    found = room(server)
    for context in CONTEXTS:
        top, limit = most(server, context)
        if limit == "memory":
            assert top * context <= found.tokens < (top + 1) * context
            assert (top + 1) * context * found.per_token > found.cache - found.per_token
        else:
            assert top == server.spec.batch
            assert top * context <= found.tokens
    at = own.contexts[-1]
    assert at.points[-1].sequences == at.most
    assert at.points[-1].pace.batch == at.most


def test_no_step_is_faster_than_the_roofline(own: Curve) -> None:
    for at in own.contexts:
        for one in at.points:
            assert one.light < one.step
            assert one.light < one.in_line


@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_the_roofline_holds_what_the_architecture_counts(cache: str) -> None:
    """Counted apart: all of the cache is read, and all FLOP are done, at the datasheet's rates."""
    engine = made("kimi-k2", redundant_experts=32, cache=cache, expert_load=1.0)
    spec = load_part("models", "kimi-k2").spec
    for at in curve(engine).contexts:
        seen = at.context - 512
        for one in at.points:
            read = one.sequences * seen * cached_bytes(engine) / BANDWIDTH
            done = one.sequences * decode_flop(spec, seen) / FP8_PEAK
            assert one.light > read
            assert one.light > done
            assert one.parts["cache"] > read


def test_twice_the_heads_read_the_cache_once() -> None:
    """A latent is every head's: what is read of it stays, the FLOP double."""
    own = made("kimi-k2", redundant_experts=32)
    twice = Engine(own.spec, with_heads(own.model, 128), own.cluster, own.calibration)
    pair = [curve(one, (131_072,)).contexts[0].points[1] for one in (own, twice)]
    assert pair[1].parts["cache"] == pytest.approx(pair[0].parts["cache"], rel=0.02)
    assert pair[1].parts["weights"] > pair[0].parts["weights"]
    assert pair[1].step < 1.2 * pair[0].step  # the report counts 83 % more FLOP


def test_without_turns_a_step_is_that_of_an_engine_without() -> None:
    both = [made("kimi-k2", redundant_experts=32, two_batches=two) for two in (True, False)]
    turning, plain = (curve(one).contexts[0].points for one in both)
    assert [one.in_line for one in turning] == [one.step for one in plain]
    assert turning[3].step > turning[3].in_line


def test_an_engine_without_room_for_one_sequence_has_no_points() -> None:
    found = curve(made("kimi-k2", gpus=16))  # 78 GB of weights on a GPU of 80
    assert [at.most for at in found.contexts] == [1, 0, 0]
    assert [len(at.points) for at in found.contexts] == [1, 0, 0]
    assert found.to_json()["contexts"][2]["points"] == []


def test_users_double_up_to_the_last() -> None:
    assert [list(sizes(top)) for top in (0, 1, 2, 3, 8, 11)] == [
        [], [1], [1, 2], [1, 2, 3], [1, 2, 4, 8], [1, 2, 4, 8, 11],
    ]  # fmt: skip
