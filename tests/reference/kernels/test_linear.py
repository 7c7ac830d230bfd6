"""Products in fp32 that call oneDNN, against float64."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from reference.kernels import attention_blocks, grouped, linear
from reference.kernels.grouped import grouped_matmul

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="no oneDNN")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """Every product by oneDNN, whatever the CPU, and the shapes of its left sides."""
    found: list[tuple[int, ...]] = []

    def always(left: Tensor, right: Tensor) -> bool:
        del right
        found.append(tuple(left.shape))
        return left.dtype == torch.float32 and left.numel() > 0

    monkeypatch.setattr(linear, "by_onednn", always)
    monkeypatch.setattr(attention_blocks, "by_onednn", always)
    for module in (grouped, attention_blocks):
        monkeypatch.setattr(module, "fp32_by_onednn", lambda: True)
    monkeypatch.setattr(grouped, "WORTHWHILE", 1)
    monkeypatch.setattr(attention_blocks, "_SINGLY", 1)
    yield found
    assert found


def near(found: Tensor, exact: Tensor) -> None:
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=3e-6 * exact.abs().max().item())


def drawn(*shape: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(*shape)
    return x.requires_grad_(), x.detach().double().requires_grad_()


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("shape", [(3, 70, 33, 65), (1, 128, 64, 16), (2, 1, 5, 3)])
@pytest.mark.parametrize("strided", [False, True])
def test_a_layer_and_its_gradients(shape, strided):
    B, T, I, O = shape  # noqa: E741
    (x, exact_x), (weight, exact_weight) = drawn(B, T, I), drawn(O, I)
    dout = torch.randn(B, O, T).transpose(1, 2) if strided else torch.randn(B, T, O)
    out, exact = linear.linear(x, weight), exact_x @ exact_weight.T
    near(out, exact)
    got = torch.autograd.grad(out, (x, weight), dout)
    true = torch.autograd.grad(exact, (exact_x, exact_weight), dout.double())
    for own, theirs in zip(got, true, strict=True):
        assert own.is_contiguous()
        near(own, theirs)


@pytest.mark.usefixtures("calls")
def test_onednn_gets_no_right_side_with_gaps(monkeypatch):
    """It has no quick kernel for one."""
    made, taken = linear._by_onednn, list[bool]()

    def watched(left: Tensor, right: Tensor) -> Tensor:
        taken.append(right.is_contiguous() or right.T.is_contiguous())
        return made(left, right)

    monkeypatch.setattr(linear, "_by_onednn", watched)
    left, table = torch.randn(8, 24), torch.randn(40, 48)
    columns = torch.randn(24, 80)
    rights = (table[:, :24], columns[:, :40].T, table[:, ::2], columns[:, :40].contiguous().T)
    for right in rights:
        near(linear.product(left, right), left.double() @ right.double().T)
    q, k, v = (torch.randn(1, 300, 2, width) for width in (24, 24, 16))
    attention_blocks.forward(q, k, v, 0.2)
    assert len(taken) > len(rights)
    assert all(taken)


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("ends", [(70, 70, 201, 256), (1, 2, 3, 4), (0, 0, 64, 64)])
def test_rows_of_experts_and_their_gradients(ends):
    (rows, exact_rows), (weights, exact_weights) = drawn(ends[-1], 24), drawn(4, 40, 24)
    places = torch.tensor(ends, dtype=torch.int32)
    made = [
        grouped_matmul(one, each.transpose(1, 2), places)
        for one, each in ((rows, weights), (exact_rows, exact_weights))
    ]
    dout = torch.randn(ends[-1], 40)
    near(made[0], made[1])
    got = torch.autograd.grad(made[0], (rows, weights), dout)
    true = torch.autograd.grad(made[1], (exact_rows, exact_weights), dout.double())
    for own, theirs in zip(got, true, strict=True):
        near(own, theirs)


@pytest.mark.parametrize(("tokens", "keys", "kv_heads"), [(70, 70, 2), (200, 260, 1)])
def test_attention_and_its_gradients(calls, tokens, keys, kv_heads):
    shapes = ((2, tokens, 2, 24), (2, keys, kv_heads, 24), (2, keys, kv_heads, 16))
    q, k, v = (torch.randn(*shape) for shape in shapes)
    dout = torch.randn(2, tokens, 2, 16)
    own = attention_blocks.forward(q, k, v, 0.3)
    exact = attention_blocks.forward(q.double(), k.double(), v.double(), 0.3)
    assert len(calls) > 8
    gradients = attention_blocks.backward(dout, (q, k, v, own[0]), 0.3)
    wide = (q.double(), k.double(), v.double(), exact[0])
    true = attention_blocks.backward(dout.double(), wide, 0.3)
    for one, other in zip((*own, *gradients), (*exact, *true), strict=True):
        near(one, other.double())
