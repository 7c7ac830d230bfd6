"""SwiGLU against its definition, its gradients and what it saves."""

import pytest
import torch

from reference.kernels import swiglu as room
from reference.kernels.swiglu import swiglu
from tests.reference.kernels.saved import same, saved_by


def definition(gate_up, weight=None):
    gate, up = gate_up.double().chunk(2, -1)
    out = gate / (1 + (-gate).exp()) * up
    return out if weight is None else out * weight.double().unsqueeze(-1)


@pytest.mark.parametrize("weighted", [False, True])
def test_gradcheck_passes(weighted):
    gate_up = torch.randn(2, 3, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 3, dtype=torch.float64, requires_grad=True) if weighted else None
    assert torch.autograd.gradcheck(swiglu, (gate_up,) if weight is None else (gate_up, weight))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_output_and_gradients_are_rounded_once(dtype, weighted, monkeypatch):
    monkeypatch.setattr(room, "_BLOCK", 256)  # several blocks where there are blocks at all
    gate_up = (3 * torch.randn(40, 48)).to(dtype).requires_grad_()
    weight = torch.rand(40, requires_grad=True) if weighted else None
    inputs = (gate_up,) if weight is None else (gate_up, weight)
    out, want = swiglu(*inputs), definition(*inputs)
    dout = torch.randn_like(out)
    got = (out, *torch.autograd.grad(out, inputs, dout))
    true = (want, *torch.autograd.grad(want, inputs, dout.double()))
    for one, other in zip(got, true, strict=True):
        # half a unit in the last place of the result, and fp32's own errors
        near = (
            torch.finfo(one.dtype).eps / 2 + torch.finfo(torch.promote_types(dtype, one.dtype)).eps
        )
        torch.testing.assert_close(one.double(), other.double(), rtol=near, atol=2e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_it_saves_gate_up_and_weight_and_nothing_of_its_own(weighted):
    gate_up = torch.randn(6, 8, requires_grad=True)
    weight = torch.rand(6, requires_grad=True) if weighted else None
    _, kept = saved_by(lambda: swiglu(gate_up, weight))
    assert same(kept, gate_up) if weight is None else same(kept, gate_up, weight)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_no_rows_and_the_meta_device_give_shapes(dtype):
    for place, rows in (("cpu", 0), ("meta", 6)):
        gate_up = torch.randn(rows, 8, dtype=dtype, device=place, requires_grad=True)
        weight = torch.rand(rows, device=place, requires_grad=True)
        out = swiglu(gate_up, weight)
        out.sum().backward()
        assert (out.shape, out.dtype) == ((rows, 4), dtype)
        assert gate_up.grad is not None
        assert weight.grad is not None
        assert (gate_up.grad.shape, weight.grad.shape) == (gate_up.shape, weight.shape)
