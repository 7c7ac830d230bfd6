"""Cross-entropy against PyTorch's, to the last bits."""

import pytest
import torch
from torch.nn import functional

from reference.kernels import cross_entropy as kernel
from reference.kernels.cross_entropy import cross_entropy
from tests.reference.kernels.saved import saved_by


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weighed", [False, True])
def test_nats_and_gradients_equal_pytorchs(monkeypatch, dtype, weighed):
    monkeypatch.setattr(kernel, "_BLOCK", 7 * 50)  # blocks of 7 rows, the last of 1
    logits, targets = 9 * torch.randn(50, 50), torch.randint(0, 50, (50,))
    own = logits.to(dtype).requires_grad_()
    wide = torch.promote_types(dtype, torch.float32)
    theirs = own.detach().to(wide).requires_grad_()
    dnats = torch.rand(50, dtype=wide) if weighed else torch.full((), 1 / 50, dtype=wide).expand(50)
    nats = cross_entropy(own, targets)
    want = functional.cross_entropy(theirs, targets, reduction="none")
    assert torch.equal(nats, want)
    (got,), (true,) = (torch.autograd.grad(*one, dnats) for one in ((nats, own), (want, theirs)))
    assert got.dtype == dtype
    torch.testing.assert_close(
        got, true.to(dtype), rtol=2**-7 if own.element_size() < 4 else 0, atol=2**-22
    )


def test_gradcheck_passes():
    logits = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 7, (5,))
    assert torch.autograd.gradcheck(lambda x: cross_entropy(x, targets), (logits,))


def test_it_saves_one_tensor_of_the_size_of_the_logits():
    logits = torch.randn(6, 9, dtype=torch.bfloat16, requires_grad=True)
    _, saved = saved_by(lambda: cross_entropy(logits, torch.zeros(6, dtype=torch.long)))
    assert [(tuple(one.shape), one.dtype) for one in saved] == [((6, 9), torch.float32)]
