"""What the allocator holds for a step: laws, and holes that a large tensor leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.planning.examples import scenario
from twin.engine import plan
from twin.loading import load
from twin.planning.replay import cached_bytes, device_memory
from twin.planning.types import Plan
from twin.scenario import Scenario


def of_llama(*changes: str) -> Plan:
    return plan(load("llama-3-405b-16384xh100", changes))


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("memory.recompute=[full]",),
        ("software=torchtitan",),
        ("parallel.zero=3", "memory.fully_shard=true", "parallel.pipeline=1"),
    ],
)
def test_allocated_is_at_most_reserved_is_at_most_in_use(changes: tuple[str, ...]) -> None:
    made = of_llama(*changes)
    device = device_memory(made)
    assert 0 < device.allocated <= device.reserved < device.in_use
    assert device.allocated == made.memory.peak.peak_bytes - device_user_buffers(made)


def device_user_buffers(made: Plan) -> float:
    return made.memory.peak.categories.get("user_buffers", 0.0)


def test_a_device_without_room_has_all_that_it_can_hold_and_says_what_it_gives_back() -> None:
    made = of_llama()
    made = replace(made, memory=replace(made.memory, capacity=1e15))
    roomy = device_memory(made)
    assert roomy.given_back == 0
    full = replace(made.memory, capacity=roomy.in_use - 1e6)
    tight = device_memory(replace(made, memory=full))
    assert tight.in_use == full.capacity
    assert tight.given_back == pytest.approx(1e6)
    assert tight.allocated == roomy.allocated


def test_user_buffers_are_in_use_and_no_tensors() -> None:
    made = of_llama("parallel.overlap_tensor=pieces")
    size = device_user_buffers(made)
    assert size > 0
    device = device_memory(made)
    outside = sum(entry for name, entry in made.memory.reserve.items() if name != "fragmentation")
    assert device.in_use - device.reserved == pytest.approx(size + outside)


def with_logits(loss: str) -> Scenario:
    """A model whose logits are by far the largest tensors, sharded over all ranks."""
    return scenario(
        model={"vocab": 8_000_000},
        train={"cross_entropy": loss},
        parallel={"zero": 3},
        memory={"fully_shard": True},
    )


def test_the_gradient_of_fp32_logits_fits_into_no_hole_that_the_bf16_ones_left() -> None:
    """Eager cross-entropy frees 6 bytes of a logit, takes 4 of them for the gradient of
    log-softmax, and finds 2 for the next 4."""
    made = plan(with_logits("eager"))
    logit = made.scenario.model.vocab * made.scenario.train.sequence
    assert cached_bytes(made, 0) >= 1.9 * logit


def test_a_loop_that_holds_its_logits_has_4_bytes_of_a_logit_more() -> None:
    free, held = (plan(with_logits(loss)) for loss in ("eager", "eager_held"))
    logit = free.scenario.model.vocab * free.scenario.train.sequence
    more = held.memory.peak.peak_bytes - free.memory.peak.peak_bytes
    assert more == pytest.approx(4 * logit)


@pytest.mark.parametrize("name", ["gpt-175b-64xa100-full", "gpt-175b-64xa100-selective"])
def test_megatron_holds_little_beside_its_tensors(name: str) -> None:
    device = device_memory(plan(load(name)))
    assert device.reserved < 1.15 * device.allocated


def test_fsdp1_reserves_one_gathered_layer_more() -> None:
    """Its memory waits for the device while the next is gathered; no tensor has it."""
    sharded = ("parallel.zero=3", "parallel.pipeline=1", "software=fsdp1")
    late, at_once = (
        of_llama(*sharded, f"software.frees_late={flag}") for flag in ("true", "false")
    )
    largest = max(layer.used.total for chunk in late.chunks for layer in chunk.layers)
    more = cached_bytes(late, 0) - cached_bytes(at_once, 0)
    assert more == pytest.approx(2 * largest, abs=2 << 20)
    assert late.memory == at_once.memory
