"""Causal attention in blocks of rows: PyTorch operations alone, on any device and in any dtype.

Each block of rows meets only the keys up to its last row's diagonal, so about half of the square is
never computed, and its logits live in one small buffer that every block reuses. Logits and softmax
are fp32 for bf16 (float64 for float64): a logit of 100 in bf16 would be off by up to 0.25. The row
maxima that `max_logit_H` needs fall out of the softmax. The backward computes the logits again.

Why not torch's SDPA on a CPU: its fused kernel wants equal widths for keys and values, so 192/128
heads fall to the unfused one, which holds the whole square; with V padded to 192 it is still slower
than this (`tests/benchmarks/test_reference_kernels.py` prints both).

Legend: B batch, T queries, S keys seen, H heads, G kv heads, J = H / G heads per kv head,
Z = B * G independent problems, N = T * J their rows (row = t * J + j), Q query-key width, V value
width, W any width, n rows of a block, s keys that it sees.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from reference.kernels.linear import by_onednn, product
from reference.number_formats import fp32_by_onednn

_BUFFER = 1 << 19
"""Logits of a block, OURS: 2 MiB in fp32. Smaller spends its time between operations at nano's
shapes, larger leaves the cache; half or twice as many differ by less than the noise on a Zen 5."""


_SINGLY = 1 << 22
"""Multiply-adds of a block's logits from which on one call each by oneDNN is faster than one for
all problems by MKL, where `fp32_by_onednn`."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    B: int
    T: int
    S: int
    G: int
    J: int
    singly: bool
    """Whether oneDNN multiplies, which batches no fp32."""

    @property
    def rows(self) -> int:
        """Queries per block, OURS: 128, which matrix kernels want, or 64 where T is short.

        A block wastes half of itself above the diagonal: T = 256 in blocks of 128 computes 3/4 of
        the square, in blocks of 64 only 5/8.
        """
        return min(self.T, 128 if self.T > 512 or self.singly else 64)

    @property
    def problems(self) -> int:
        """How many of the Z independent problems go through one batched operation."""
        if self.singly:
            return 1
        return max(1, min(self.B * self.G, _BUFFER // (self.rows * self.J * self.S)))

    def blocks(self) -> Iterator[tuple[slice, slice, int]]:
        """Problems, rows of N, and how many keys the last of those rows sees."""
        Z, J, rows, problems = self.B * self.G, self.J, self.rows, self.problems
        for z in range(0, Z, problems):
            for t in range(0, self.T, rows):
                last = min(t + rows, self.T)
                some = slice(z, min(z + problems, Z))
                yield some, slice(t * J, last * J), self.S - self.T + last


def forward(
    q_BTHQ: Tensor, k_BSGQ: Tensor, v_BSGV: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`(out_BTHV, lse_BHT, max_logit_H)`; the last two fp32 (lse float64 for float64)."""
    size = _sizes(q_BTHQ, k_BSGQ)
    wide = torch.promote_types(q_BTHQ.dtype, torch.float32)
    q_ZNQ, k_ZSQ = _by_problem(q_BTHQ, size.J).to(wide), _by_problem(k_BSGQ, 1).to(wide)
    v_ZSV = _by_problem(v_BSGV, 1)
    logits, p, hidden_nn = _work(size, q_ZNQ)
    (Z, N, _), V = q_ZNQ.shape, v_ZSV.shape[2]
    out_ZNV = v_ZSV.new_empty(Z, N, V)
    max_ZN, top_ZN = q_ZNQ.new_empty(2, Z, N)
    for z, n, s in size.blocks():
        logits_Zns = _logits(q_ZNQ[z, n], k_ZSQ[z, :s], scale, hidden_nn, logits)
        p_Zns = torch.softmax(logits_Zns, -1, out=_view(p, logits_Zns.shape))
        torch.amax(logits_Zns, -1, out=max_ZN[z, n])
        torch.amax(p_Zns, -1, out=top_ZN[z, n])
        _product_into(out_ZNV[z, n], p_Zns.to(v_ZSV.dtype), v_ZSV[z, :s])
    # The largest probability is exp(max - max) / sum, so minus its logarithm is the sum's.
    lse_BHT = _by_head(max_ZN - top_ZN.log_(), size)
    max_logit_H = _by_head(max_ZN, size).amax((0, 2)).float()
    return _by_token(out_ZNV, size, size.J).contiguous(), lse_BHT, max_logit_H


def backward(
    dout_BTHV: Tensor, saved: tuple[Tensor, Tensor, Tensor, Tensor], scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v; `saved` is q, k, v and out.

    The softmax is taken again rather than exp(logit - lse): the same bits as in the forward, and
    faster, because torch's softmax has the quicker exponential. Gradients of keys and values add
    up over the blocks in fp32.
    """
    q_BTHQ, k_BSGQ, v_BSGV, out_BTHV = saved
    size = _sizes(q_BTHQ, k_BSGQ)
    q_ZNQ, k_ZSQ = _by_problem(q_BTHQ, size.J), _by_problem(k_BSGQ, 1)
    v_ZVS = _by_problem(v_BSGV, 1).transpose(1, 2)
    dout_ZNV, out_ZNV = _by_problem(dout_BTHV, size.J), _by_problem(out_BTHV, size.J)
    low, wide = q_ZNQ.dtype, torch.promote_types(q_ZNQ.dtype, torch.float32)
    wide_q_ZNQ, wide_k_ZSQ = q_ZNQ.to(wide), k_ZSQ.to(wide)
    along_ZN1 = (dout_ZNV.to(wide) * out_ZNV).sum(-1, keepdim=True)
    logits, p, hidden_nn = _work(size, wide_q_ZNQ)
    dq_ZNQ = torch.empty_like(q_ZNQ)
    dk_ZSQ = torch.zeros_like(k_ZSQ, dtype=wide)
    dv_ZSV = torch.zeros_like(v_ZVS.transpose(1, 2), dtype=wide)
    for z, n, s in size.blocks():
        logits_Zns = _logits(wide_q_ZNQ[z, n], wide_k_ZSQ[z, :s], scale, hidden_nn, logits)
        p_Zns = torch.softmax(logits_Zns, -1, out=_view(p, logits_Zns.shape))
        _add_product(dv_ZSV[z, :s], p_Zns.to(low), dout_ZNV[z, n], 1.0)
        # d logit = p * (dp - sum over keys of p * dp), and that sum is dout . out
        dp_Zns = _product_into(logits_Zns, dout_ZNV[z, n], v_ZVS[z, :, :s])
        dlogits_Zns = dp_Zns.sub_(along_ZN1[z, n]).mul_(p_Zns).to(low)
        _product_into(dq_ZNQ[z, n], dlogits_Zns, k_ZSQ[z, :s], scale)
        _add_product(dk_ZSQ[z, :s], dlogits_Zns, q_ZNQ[z, n], scale)
    dk_BSGQ, dv_BSGV = _by_token(dk_ZSQ.to(low), size, 1), _by_token(dv_ZSV.to(low), size, 1)
    return _by_token(dq_ZNQ, size, size.J), dk_BSGQ, dv_BSGV


def _sizes(q_BTHQ: Tensor, k_BSGQ: Tensor) -> _Sizes:
    B, T, H, Q = q_BTHQ.shape
    S, G = k_BSGQ.shape[1:3]
    block = min(T, 64) * (H // G) * S * Q
    wide = torch.promote_types(q_BTHQ.dtype, torch.float32) == torch.float32
    singly = q_BTHQ.device.type == "cpu" and wide and block >= _SINGLY and fp32_by_onednn()
    return _Sizes(B, T, S, G, H // G, singly)


def _work(size: _Sizes, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Room for a block's logits and for its probabilities, and minus infinity above the diagonal
    (added: `masked_fill_` takes six times as long)."""
    logits, p = like.new_empty(2, size.problems * size.rows * size.J * size.S)
    hidden_nn = like.new_full((size.rows, size.rows), -math.inf).triu_(1)
    return logits, p, hidden_nn.repeat_interleave(size.J, 0) if size.J > 1 else hidden_nn


def _view(buffer: Tensor, shape: tuple[int, ...]) -> Tensor:
    return buffer[: math.prod(shape)].view(shape)


def _logits(
    q_ZnQ: Tensor, k_ZsQ: Tensor, scale: float, hidden_nn: Tensor, buffer: Tensor
) -> Tensor:
    """A block's scaled logits in `buffer`, minus infinity above the diagonal: [Z, n, s]."""
    (problems, rows, _), keys = q_ZnQ.shape, k_ZsQ.shape[1]
    logits_Zns = _view(buffer, (problems, rows, keys))
    if problems == 1 and by_onednn(q_ZnQ[0], k_ZsQ[0]):
        logits_Zns = product(q_ZnQ[0] * scale, k_ZsQ[0])[None]
    else:
        torch.baddbmm(logits_Zns, q_ZnQ, k_ZsQ.mT, beta=0, alpha=scale, out=logits_Zns)
    tokens = rows * hidden_nn.shape[1] // hidden_nn.shape[0]
    if tokens > 1:
        logits_Zns[..., keys - tokens :].add_(hidden_nn[:rows, :tokens])
    return logits_Zns


def _product_into(into: Tensor, left: Tensor, right: Tensor, factor: float = 1.0) -> Tensor:
    """`into` filled with `factor * left @ right`, whose dtype may be narrower."""
    if len(into) == 1 and by_onednn(left[0], right[0].T):
        return torch.mul(product(left[0], right[0].T), factor, out=into[0])[None]
    if into.dtype == left.dtype and into.is_contiguous():
        return torch.baddbmm(into, left, right, beta=0, alpha=factor, out=into)
    return torch.mul(torch.bmm(left, right), factor, out=into)


def _add_product(wide: Tensor, left: Tensor, right: Tensor, factor: float) -> None:
    """`wide += factor * left^T @ right`, summed in the dtype of `wide`."""
    if len(wide) == 1 and by_onednn(left[0].T, right[0].T):
        wide[0].add_(product(left[0].T, right[0].T), alpha=factor)
    else:
        wide.add_(torch.bmm(left.transpose(1, 2), right), alpha=factor)


def _by_problem(x_BTHW: Tensor, J: int) -> Tensor:
    """[Z, N, W] of [B, T, H, W]; one batch of one query head per kv head is not copied."""
    B, T, H, W = x_BTHW.shape
    x_BGTJW = x_BTHW.unflatten(2, (H // J, J)).transpose(1, 2)
    return x_BGTJW.reshape(B * (H // J), T * J, W)


def _by_token(x_ZNW: Tensor, size: _Sizes, J: int) -> Tensor:
    """[B, T, H, W] of [Z, N, W]: the inverse of `_by_problem`, a view where it can be."""
    return x_ZNW.view(size.B, size.G, -1, J, x_ZNW.shape[-1]).transpose(1, 2).flatten(2, 3)


def _by_head(x_ZN: Tensor, size: _Sizes) -> Tensor:
    """[B, H, T] of [Z, N]."""
    return x_ZN.view(size.B, size.G, size.T, size.J).transpose(2, 3).flatten(1, 2)
