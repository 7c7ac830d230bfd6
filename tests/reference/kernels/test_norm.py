"""RMSNorm against torch's in float64, its gradients and what it saves."""

import pytest
import torch
from torch.nn.functional import rms_norm as torchs

from reference.kernels.norm import rms_norm
from tests.reference.kernels.saved import saved_by

NEAR = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2**-8}


@pytest.mark.parametrize(("dtype", "near"), NEAR.items())
@pytest.mark.parametrize("shape", [(7,), (5, 16), (2, 3, 24), (0, 8)])
def test_output_and_gradients_equal_torchs_in_float64(shape, dtype, near):
    x = torch.randn(shape).to(dtype).requires_grad_()
    gain = torch.rand(shape[-1:]).to(dtype).requires_grad_()
    out = rms_norm(x, gain, 1e-3)
    want = torchs(x.double(), shape[-1:], gain.double(), 1e-3)
    dout = torch.randn_like(out)
    got = (out, *torch.autograd.grad(out, (x, gain), dout))
    true = (want, *torch.autograd.grad(want, (x, gain), dout.double()))
    for one, other in zip(got, true, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one.double(), other.double(), rtol=near, atol=4 * near)


def test_gradcheck_passes_where_eps_weighs_as_much_as_the_row():
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    gain = torch.randn(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, gain: rms_norm(x, gain, 1.0), (x, gain))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_it_saves_the_input_the_gain_and_one_fp32_number_per_row(dtype):
    x = torch.randn(2, 3, 8, dtype=dtype, requires_grad=True)
    gain = torch.ones(8, dtype=dtype, requires_grad=True)
    _, (kept_x, kept_gain, rstd) = saved_by(lambda: rms_norm(x, gain, 1e-6))
    assert (kept_x.data_ptr(), kept_gain.data_ptr()) == (x.data_ptr(), gain.data_ptr())
    assert (rstd.shape, rstd.dtype) == ((2, 3, 1), torch.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_meta_device_gives_shapes(dtype):
    x = torch.randn(2, 3, 8, dtype=dtype, device="meta", requires_grad=True)
    gain = torch.ones(8, dtype=dtype, device="meta", requires_grad=True)
    out = rms_norm(x, gain, 1e-6)
    out.sum().backward()
    assert (out.shape, out.dtype) == (x.shape, dtype)
    assert x.grad is not None
    assert x.grad.shape == x.shape
