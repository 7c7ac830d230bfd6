"""Attention against the whole square in float64, its gradients, statistics and what it saves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from reference.kernels import attention_cuda
from reference.kernels.attention import attention
from tests.reference.kernels.saved import same, saved_by

# B, T, S, H, G, Q, V: training, several blocks of either height, several groups of problems,
# grouped queries, a cache before the queries, one query, keys narrower than values
SHAPES = {
    "one block": (2, 7, 7, 4, 4, 6, 3),
    "blocks of 64, the last one partial": (2, 150, 150, 2, 2, 8, 4),
    "blocks of 128": (1, 530, 530, 2, 2, 4, 4),
    "problems in several batches": (9, 512, 512, 4, 4, 4, 2),
    "grouped queries": (2, 70, 70, 6, 2, 8, 4),
    "queries after a cache": (2, 67, 90, 4, 4, 8, 4),
    "grouped queries after a cache": (1, 66, 70, 4, 1, 8, 16),
    "one query of many heads on one latent": (3, 1, 40, 8, 1, 12, 8),
}


def parts(shape, dtype, trained=False) -> tuple[Tensor, Tensor, Tensor]:
    B, T, S, H, G, Q, V = shape
    generator = torch.Generator().manual_seed(0)
    sizes = (B, T, H, Q), (B, S, G, Q), (B, S, G, V)
    q, k, v = (torch.randn(size, generator=generator).to(dtype) for size in sizes)
    return q.requires_grad_(trained), k.requires_grad_(trained), v.requires_grad_(trained)


def whole_square(q, k, v, scale):
    """The definition, in float64: out, lse and the largest logit per head."""
    q, k, v = q.double(), k.double(), v.double()
    shared, T, S = q.shape[2] // k.shape[2], q.shape[1], k.shape[1]
    k, v = k.repeat_interleave(shared, 2), v.repeat_interleave(shared, 2)
    logits = torch.einsum("bthq,bshq->bhts", q, k) * scale
    visible = torch.arange(S)[None] <= torch.arange(T)[:, None] + S - T
    logits = logits.masked_fill(~visible, -torch.inf)
    out = torch.einsum("bhts,bshv->bthv", logits.softmax(-1), v)
    return out, logits.logsumexp(-1), logits.amax((0, 2, 3))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(
    ("dtype", "near"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.02)]
)
def test_output_and_statistics_equal_the_whole_squares(shape, dtype, near):
    q, k, v = parts(shape, dtype)
    out, lse, largest = attention(q, k, v, 0.4)
    want_out, want_lse, want_largest = whole_square(q, k, v, 0.4)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), want_out, atol=near, rtol=near)
    # logits of bf16 inputs are fp32: their statistics are as exact as those of fp32
    exact = min(near, 1e-5)
    torch.testing.assert_close(lse.double(), want_lse, atol=exact, rtol=exact)
    exact = max(exact, 1e-6)  # the maximum is fp32 whatever the dtype
    torch.testing.assert_close(largest.double(), want_largest, atol=exact, rtol=exact)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(
    ("dtype", "near"), [(torch.float64, 1e-11), (torch.float32, 1e-4), (torch.bfloat16, 0.02)]
)
def test_gradients_equal_the_whole_squares(shape, dtype, near):
    q, k, v = parts(shape, dtype, trained=True)
    out = attention(q, k, v, 0.4)[0]
    dout = torch.randn_like(out)
    got = torch.autograd.grad(out, (q, k, v), dout)
    want = torch.autograd.grad(whole_square(q, k, v, 0.4)[0], (q, k, v), dout.double())
    for one, other in zip(got, want, strict=True):
        error = (one.double() - other.double()).norm() / other.double().norm()
        assert error < near


def test_gradcheck_passes_with_grouped_queries_after_a_cache():
    q, k, v = parts((2, 4, 6, 4, 2, 5, 3), torch.float64, trained=True)
    assert torch.autograd.gradcheck(lambda q, k, v: attention(q, k, v, 0.3)[0], (q, k, v))


def test_the_largest_logit_keeps_its_sign():
    q, k, v = parts((2, 80, 80, 2, 2, 6, 4), torch.float32)
    largest = attention(q.abs(), -k.abs(), v, 0.5)[2]
    assert (largest < 0).all()
    torch.testing.assert_close(largest.double(), whole_square(q.abs(), -k.abs(), v, 0.5)[2])


def test_a_later_key_changes_nothing():
    q, k, v = parts((1, 130, 130, 2, 2, 6, 4), torch.float32)
    before = attention(q, k, v, 0.5)
    k[:, 100:], v[:, 100:] = 1e4, -1e4
    after = attention(q, k, v, 0.5)
    assert torch.equal(before[0][:, :100], after[0][:, :100])
    assert torch.equal(before[1][..., :100], after[1][..., :100])


def test_logits_of_a_hundred_in_bf16_are_as_exact_as_in_fp32():
    q, k, v = parts((1, 100, 100, 2, 2, 16, 4), torch.bfloat16)
    largest = attention(q, k, v, 7.0)[2]
    want = attention(q.float(), k.float(), v.float(), 7.0)[2]
    assert want.min() > 60
    assert torch.equal(largest, want)


def test_it_saves_its_inputs_its_output_and_the_log_sums():
    q, k, v = parts((2, 70, 70, 4, 4, 6, 3), torch.float32, trained=True)
    (out, lse, largest), kept = saved_by(lambda: attention(q, k, v, 0.4))
    assert same(kept, q, k, v, out, lse)
    assert out.requires_grad
    assert not lse.requires_grad
    assert not largest.requires_grad


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_meta_device_gives_the_shapes_of_the_cpu(dtype):
    shape = (2, 5, 9, 4, 2, 6, 3)
    on_cpu = attention(*parts(shape, dtype), scale=0.4)
    q, k, v = (part.to("meta").requires_grad_() for part in parts(shape, dtype))
    on_meta = attention(q, k, v, 0.4)
    assert [(t.shape, t.dtype) for t in on_meta] == [(t.shape, t.dtype) for t in on_cpu]
    gradients = torch.autograd.grad(on_meta[0].sum(), (q, k, v))
    assert [part.shape for part in gradients] == [q.shape, k.shape, v.shape]


@pytest.mark.parametrize(
    "shape", [(1, 5, 4, 2, 2, 4, 4), (1, 5, 5, 3, 2, 4, 4)], ids=["T > S", "G does not divide H"]
)
def test_shapes_that_do_not_fit_are_refused(shape):
    with pytest.raises(ValueError, match=r"q is \[B, T, H, Q\]"):
        attention(*parts(shape, torch.float32), scale=1.0)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(2, 300, 300, 4, 4, 192, 128), (1, 256, 256, 4, 2, 64, 64)])
def test_fused_attention_equals_the_blocks(shape):
    ours = [part.cuda() for part in parts(shape, torch.bfloat16)]
    theirs = [part.float() for part in ours]
    for part in (*ours, *theirs):
        part.requires_grad_()
    got, want = attention(*ours, scale=0.1), attention(*theirs, scale=0.1)
    dout = torch.randn_like(got[0])
    got += torch.autograd.grad(got[0], ours, dout)
    want += torch.autograd.grad(want[0], theirs, dout.float())
    for one, other in zip(got, want, strict=True):
        assert (one.float() - other).norm() / other.norm() < 0.02


@pytest.mark.parametrize(
    ("dtype", "fuses"), [(torch.bfloat16, True), (torch.float16, True), (torch.float32, False)]
)
def test_only_two_byte_numbers_are_fused_on_a_gpu(monkeypatch, dtype, fuses):
    """The largest logit's kernel would want more shared memory for fp32 than a GPU has."""
    for takes in ("by_triton", "_cudnn_takes", "_flash_takes"):
        monkeypatch.setattr(attention_cuda, takes, lambda *_: True)
    q = torch.empty(1, 8, 2, 16, dtype=dtype)
    assert attention_cuda.fuses(q, q, q) == fuses
