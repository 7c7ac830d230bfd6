"""Triton's kernels against their PyTorch twins: on the GPU where there is one, else interpreted."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from reference.kernels import attention_blocks, fp8, swiglu

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(scope="module")
def room():
    # The interpreter computes with numpy, which would warn.
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        if DEVICE == "cpu":
            # Read when a function is defined. Other tests may have imported Triton before, whose
            # own functions have to be defined again.
            patch.setenv("TRITON_INTERPRET", "1")
            for name in [name for name in sys.modules if name.split(".")[0] == "triton"]:
                if not name.startswith("triton._C"):  # compiled: loads once
                    patch.delitem(sys.modules, name)
        from reference.kernels import attention_triton, fp8_triton, swiglu_triton  # noqa: PLC0415

        yield SimpleNamespace(attention=attention_triton, fp8=fp8_triton, swiglu=swiglu_triton)


def units_apart(one, other):
    """The largest distance in representable numbers, and how many elements differ at all."""
    kind = torch.int16 if one.element_size() == 2 else torch.int32
    floor = torch.iinfo(kind).min
    apart = []
    for tensor in (one, other):
        bits = tensor.view(kind).long()
        apart.append(torch.where(bits < 0, floor - bits, bits))
    distance = (apart[0] - apart[1]).abs()
    return int(distance.max()), int((distance > 0).sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fp8_tiles_are_equal_bit_for_bit(room, dtype):
    x = (torch.randn(37, 300) * torch.logspace(-5, 5, 300)).to(dtype)
    # The interpreter misreads subnormal bf16.
    x[3, :128], x[5], x[6] = 0, 1e-39 if dtype == torch.float32 else 2e-38, -3e38
    want = fp8.quantize(x)
    values, scales = (part.cpu() for part in room.fp8.quantize(x.to(DEVICE)))
    assert torch.equal(values.view(torch.uint8), want.values_XD.view(torch.uint8))
    assert torch.equal(scales, want.scales_XJ)
    back = room.fp8.dequantize(values.to(DEVICE), scales.to(DEVICE), dtype).cpu()
    assert torch.equal(back, fp8.dequantize(want, dtype))


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_a_tile_that_is_not_finite_comes_back_as_nan(room, value):
    x = torch.randn(2, 200)
    x[1, 150] = value
    back = room.fp8.dequantize(*room.fp8.quantize(x.to(DEVICE)), torch.float32).cpu()
    assert torch.equal(back.isnan(), fp8.dequantize(fp8.quantize(x), torch.float32).isnan())
    assert back.isnan().sum() == 72


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("dtype", "units"), [(torch.float32, 4), (torch.bfloat16, 1)])
def test_swiglu_forward_is_within_units_of_the_last_place(
    room, dtype, units, weighted, monkeypatch
):
    monkeypatch.setattr(room.swiglu, "_COLUMNS", 32)
    gate_up = (3 * torch.randn(20, 2 * 70)).to(dtype)
    weight = torch.rand(20) if weighted else None
    got = room.swiglu.forward(gate_up.to(DEVICE), None if weight is None else weight.to(DEVICE))
    farthest, differing = units_apart(got.cpu(), swiglu._forward(gate_up, weight))
    # A GPU's exponential and quotient in fp32 are approximate: 6 units on an H200.
    assert farthest <= (2 * units if DEVICE == "cuda" else units)
    assert dtype == torch.float32 or differing < 0.01 * got.numel()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_swiglu_backward_is_within_one_unit_of_bf16_or_a_few_of_fp32(
    room, dtype, weighted, monkeypatch
):
    monkeypatch.setattr(room.swiglu, "_COLUMNS", 32)
    gate_up, dout = (3 * torch.randn(20, 2 * 70)).to(dtype), torch.randn(20, 70).to(dtype)
    weight = torch.rand(20) if weighted else None
    there = [None if t is None else t.to(DEVICE) for t in (dout, gate_up, weight)]
    got, want = room.swiglu.backward(*there), swiglu._backward(dout, gate_up, weight)
    for one, other in zip(got, want, strict=True):
        if other is None:
            assert one is None
        else:  # relative to 1: the derivative of silu passes zero at -1.28, by cancellation
            near = 2**-20 if other.dtype == torch.float32 else 2**-8
            torch.testing.assert_close(one.cpu(), other, rtol=near, atol=2**-16)


# B, T, S, H, G, Q: more than one block of rows, of keys and of columns, none of them full
@pytest.mark.parametrize("shape", [(1, 140, 150, 4, 2, 72), (2, 130, 130, 1, 1, 16)])
@pytest.mark.parametrize(("dtype", "sign"), [(torch.float32, -1), (torch.bfloat16, 1)])
def test_the_largest_logit_equals_the_blocks(room, shape, dtype, sign):
    B, T, S, H, G, Q = shape
    q, k = torch.randn(B, T, H, Q).abs().to(dtype), sign * torch.randn(B, S, G, Q).abs().to(dtype)
    k[:, -1] = sign * 9.0  # seen by the last query alone: the largest, or never the largest
    got = room.attention.max_logit(q.to(DEVICE), k.to(DEVICE), 0.3).cpu()
    want = attention_blocks.forward(q, k, k, 0.3)[2]
    torch.testing.assert_close(got, want, rtol=2**-20, atol=0)


# The blocks of head 0 all stay below, one of head 1's lies above, all of head 2's
@pytest.mark.parametrize("above", [0.0, 3.0, 1e9])
def test_a_block_whose_log_sum_exp_is_low_needs_no_product(room, above):
    q, k = torch.randn(1, 300, 3, 16), torch.randn(1, 300, 3, 16)
    q[:, :, 0] *= 0.1
    q[:, 140, 1] *= 9.0
    _, lse, want = attention_blocks.forward(q, k, k, 0.3)
    got = room.attention.max_logit(q.to(DEVICE), k.to(DEVICE), 0.3, lse.to(DEVICE), above).cpu()
    exact, bound = want > above, lse.amax((0, 2))
    torch.testing.assert_close(got[exact], want[exact], rtol=2**-20, atol=0)
    assert bool((got[~exact] >= want[~exact] - 2**-20).all())  # a row of one key: sums' last bits
    assert bool((got[~exact] <= bound[~exact]).all())
    if above == 1e9:
        assert torch.equal(got, bound)
