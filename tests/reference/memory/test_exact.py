"""Recomputation and offload change no bit of a loss or a gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from reference.memory.stash import Stash, layer, mark, op
from tests.reference.memory.small import (
    EXACT,
    GROUPED,
    assert_same_bits,
    forward,
    gradients,
    model,
    plain_step,
    step,
    tokens,
)
from twin.spec.memory import MemorySpec

DTYPES = (torch.float32, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("policy", EXACT.values(), ids=EXACT)
def test_a_policy_changes_no_bit_of_loss_and_gradients(policy: MemorySpec, dtype: torch.dtype):
    pico = model(dtype=dtype)
    loss, expected = plain_step(pico, tokens(pico))
    found = step(pico, tokens(pico), policy, measure=True)
    assert torch.equal(found.loss, loss)
    assert_same_bits(found.gradients, expected)


@pytest.mark.parametrize("policy", EXACT.values(), ids=EXACT)
def test_grouped_attention_without_experts_is_as_exact(policy: MemorySpec):
    small = model(GROUPED)
    loss, expected = plain_step(small, tokens(small))
    found = step(small, tokens(small), policy)
    assert torch.equal(found.loss, loss)
    assert_same_bits(found.gradients, expected)


@pytest.mark.parametrize("name", ["all", "full and offload"])
def test_several_forwards_may_wait_for_their_backward_in_any_order(name: str):
    pico = model()
    batches = tokens(pico, batch=6).split(2)
    pico.zero_grad(set_to_none=True)
    for index in (1, 0, 2):
        pico.loss(batches[index], batches[index].roll(-1, 1)).backward()
    expected = gradients(pico)
    pico.zero_grad(set_to_none=True)
    losses = [forward(pico, one, EXACT[name])[0] for one in batches]
    for index in (1, 0, 2):
        losses[index].backward()
    assert_same_bits(gradients(pico), expected)


def test_a_second_backward_over_a_kept_graph_gives_the_same_again():
    pico = model()
    once = step(pico, tokens(pico), EXACT["all"]).gradients
    pico.zero_grad(set_to_none=True)
    loss, _ = forward(pico, tokens(pico), EXACT["all"])
    loss.backward(retain_graph=True)
    pico.zero_grad(set_to_none=True)
    loss.backward()
    assert_same_bits(gradients(pico), once)


@pytest.mark.parametrize("policy", EXACT.values(), ids=EXACT)
def test_what_is_counted_in_a_forward_is_not_counted_again(policy: MemorySpec):
    pico = model()
    plain_step(pico, tokens(pico))
    loads = [one.load_E.clone() for one in pico.routers()]
    maxima = [one.max_logit_H.clone() for one in pico.attentions()]
    for router in pico.routers():
        router.reset_load()
    for attention in pico.attentions():
        attention.reset_max_logit()
    step(pico, tokens(pico), policy)
    assert all(map(torch.equal, loads, (one.load_E for one in pico.routers())))
    assert all(map(torch.equal, maxima, (one.max_logit_H for one in pico.attentions())))


def test_a_stash_leaves_the_outcome_of_other_code_alone():
    """Saved views, integers, an output that is its own input, an op without gradients."""

    def run(x: Tensor) -> Tensor:
        same = op("norms", lambda one: one, x)
        first, second = op("mla_up", lambda one: (one[:, ::2].sin(), one.detach()), same)
        index = op("moe_down", lambda one: one.argsort(-1), second)
        return (first * mark("swiglu_input", x.exp()).gather(1, index)[:, :4]).sum()

    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    (expected,) = torch.autograd.grad(run(x), x)
    policy = EXACT["all"]
    outcome = _under(policy, lambda: layer(0, run, x), x)
    assert torch.equal(outcome, expected)


def _under(policy: MemorySpec, run, x: Tensor) -> Tensor:
    with Stash(policy):
        loss = run()
    return torch.autograd.grad(loss, x)[0]
