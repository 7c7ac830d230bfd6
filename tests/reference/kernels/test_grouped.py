"""Grouped products against a loop over experts, in fp32 and fp64 to the bit."""

import pytest
import torch

from reference.kernels.grouped import grouped_matmul
from tests.reference.kernels.saved import same, saved_by

ENDS = {
    "even": (8, 16, 24, 32),
    "uneven": (1, 20, 21, 32),
    "empty experts, first and last too": (0, 0, 32, 32),
    "one row": (0, 1, 1, 1),
    "no rows": (0, 0, 0, 0),
}


def loop(rows_RI, weights_EIO, ends):
    starts = (0, *ends[:-1])
    spans = zip(starts, ends, weights_EIO, strict=True)
    return torch.cat([rows_RI[start:end] @ weight for start, end, weight in spans])


@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("width", [16, 5], ids=["aligned", "not aligned"])
def test_products_and_gradients_equal_a_loops(ends, dtype, transposed, width):
    """Bit for bit where rows are aligned: MKL's bits depend on the alignment itself. In bf16 one of
    a hundred draws differs by a rounding, since oneDNN adds whole tiles."""
    torch.manual_seed(0)
    rows = torch.randn(ends[-1], width, dtype=dtype, requires_grad=True)
    held = torch.randn(4, 24, width) if transposed else torch.randn(4, width, 24)
    held = held.to(dtype).requires_grad_()
    weights = held.transpose(1, 2) if transposed else held
    out = grouped_matmul(rows, weights, torch.tensor(ends, dtype=torch.int32))
    want = loop(rows, weights, ends)
    dout = torch.randn_like(out)
    got = (out, *torch.autograd.grad(out, (rows, held), dout))
    true = (want, *torch.autograd.grad(want, (rows, held), dout))
    for one, other in zip(got, true, strict=True):
        if width == 16 and dtype != torch.bfloat16:
            assert torch.equal(one, other)
        torch.testing.assert_close(one, other)
    assert got[2].is_contiguous()


def test_gradcheck_passes():
    rows = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    ends = torch.tensor([2, 2, 5], dtype=torch.int32)
    assert torch.autograd.gradcheck(lambda r, w: grouped_matmul(r, w, ends), (rows, weights))


def test_the_gradient_of_a_sum_which_has_stride_zero_is_taken():
    rows = torch.randn(8, 16, requires_grad=True)
    weights = torch.randn(2, 16, 8, requires_grad=True)
    grouped_matmul(rows, weights, torch.tensor([3, 8], dtype=torch.int32)).sum().backward()
    assert rows.grad is not None
    torch.testing.assert_close(rows.grad[0], weights[0].sum(1).detach())


def test_it_saves_rows_and_weights():
    rows = torch.randn(8, 16, requires_grad=True)
    weights = torch.randn(2, 16, 8, requires_grad=True)
    ends = torch.tensor([3, 8], dtype=torch.int32)
    _, kept = saved_by(lambda: grouped_matmul(rows, weights, ends))
    assert same(kept, rows, weights)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_meta_device_gives_shapes(dtype):
    rows = torch.randn(8, 16, dtype=dtype, device="meta", requires_grad=True)
    weights = torch.randn(2, 24, 16, dtype=dtype, device="meta", requires_grad=True)
    ends = torch.empty(2, dtype=torch.int32, device="meta")
    out = grouped_matmul(rows, weights.transpose(1, 2), ends)
    out.sum().backward()
    assert out.shape == (8, 24)
    assert rows.grad is not None
    assert rows.grad.shape == rows.shape
    assert weights.grad is not None
    assert weights.grad.shape == weights.shape
