"""The table's gradient against torch's own, given whole, added in place, and put off."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from reference.kernels.deferred_wgrad import DeferredGradients, deferring_to
from reference.kernels.linear import embedding

TOKENS = torch.tensor([[1, 4, 1], [0, 1, 4]])
"""One word three times, one twice, two never."""


def made() -> tuple[Tensor, Tensor, Tensor]:
    """A table, a gradient of the rows, and what torch makes of it for the table."""
    drawn = torch.Generator().manual_seed(0)
    weight = torch.randn(6, 5, dtype=torch.float64, generator=drawn).requires_grad_()
    dout = torch.randn(2, 3, 5, dtype=torch.float64, generator=drawn)
    (expected,) = torch.autograd.grad(functional.embedding(TOKENS, weight), weight, dout)
    return weight, dout, expected


def test_rows_and_the_first_gradient_are_torchs() -> None:
    weight, dout, expected = made()
    rows = embedding(TOKENS, weight)
    assert torch.equal(rows, weight[TOKENS])
    rows.backward(dout)
    torch.testing.assert_close(weight.grad, expected)


def test_a_gradient_that_is_there_is_added_to_in_its_own_type() -> None:
    weight, dout, expected = made()
    low = weight.detach().to(torch.bfloat16).requires_grad_()
    low.grad_dtype = torch.float32
    low.grad = buffer = torch.ones(6, 5)
    embedding(TOKENS, low).backward(dout.to(torch.bfloat16))
    assert low.grad is buffer
    torch.testing.assert_close(buffer, 1 + expected.float(), rtol=0, atol=0.02)


def test_it_may_wait_for_the_second_half_of_the_backward_pass() -> None:
    weight, dout, expected = made()
    weight.grad = torch.zeros_like(weight)
    deferred = DeferredGradients()
    with deferring_to(deferred):
        rows = embedding(TOKENS, weight)
    with deferred.held():
        rows.backward(dout)
    assert not weight.grad.any()
    deferred.run()
    torch.testing.assert_close(weight.grad, expected)
