"""Causal attention that also returns each row's log-sum-exp and each head's largest logit.

QK-clip (Kimi K2 report, section 2.1) needs the largest attention logit of every head in every step.
Fused attention keeps logits to itself, so this one measures them on the way.

Legend: B batch, T queries, S keys seen, H heads, G kv heads, Q query-key width, V value width.
"""

from __future__ import annotations

from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from reference.kernels import attention_blocks, attention_cuda
from reference.kernels.path import computes


def attention(
    q_BTHQ: Tensor, k_BSGQ: Tensor, v_BSGV: Tensor, scale: float, exact_above: float = -inf
) -> tuple[Tensor, Tensor, Tensor]:
    """Causal attention: `(out_BTHV, lse_BHT, max_logit_H)`.

    Query t sees keys s <= t + S - T, so that T < S continues a sequence whose first S - T tokens
    are cached. Head h reads kv head h // (H / G). `lse_BHT` is the log of the sum of exponentials
    of a row's scaled logits, `max_logit_H` the largest scaled logit, with its sign, over the batch
    and all visible pairs; both are fp32 (lse float64 for float64) and neither is differentiable.
    A maximum at or below `exact_above` may be an upper bound instead, the head's largest lse: on a
    GPU that saves a second product of queries and keys.

    Saves q, k, v, out and lse. Raises ValueError for shapes that do not fit.
    """
    _check(q_BTHQ, k_BSGQ, v_BSGV)
    return _Attention.apply(q_BTHQ, k_BSGQ, v_BSGV, scale, exact_above)  # pyright: ignore[reportReturnType]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q_BTHQ: Tensor,
        k_BSGQ: Tensor,
        v_BSGV: Tensor,
        scale: float,
        exact_above: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.scale, ctx.fused = scale, attention_cuda.fuses(q_BTHQ, k_BSGQ, v_BSGV)
        if q_BTHQ.is_meta:
            computes(_pairs(q_BTHQ, k_BSGQ) * 2 * (q_BTHQ.shape[3] + v_BSGV.shape[3]))
            made = _shapes(q_BTHQ, v_BSGV)
        elif ctx.fused:
            made = attention_cuda.forward(q_BTHQ, k_BSGQ, v_BSGV, scale, exact_above)
        else:
            made = attention_blocks.forward(q_BTHQ, k_BSGQ, v_BSGV, scale)
        out_BTHV, lse_BHT, max_logit_H = made
        ctx.save_for_backward(q_BTHQ, k_BSGQ, v_BSGV, out_BTHV, lse_BHT)
        ctx.mark_non_differentiable(lse_BHT, max_logit_H)
        return out_BTHV, lse_BHT, max_logit_H

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, dout_BTHV: Tensor, _lse: Tensor, _max: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q_BTHQ, k_BSGQ, v_BSGV, out_BTHV, lse_BHT = ctx.saved_tensors
        if q_BTHQ.is_meta:
            # Logits again and the gradients of queries and keys; those of probabilities and values.
            widths = 3 * q_BTHQ.shape[3] + 2 * v_BSGV.shape[3]
            computes(_pairs(q_BTHQ, k_BSGQ) * 2 * widths)
            return (
                torch.empty_like(q_BTHQ),
                torch.empty_like(k_BSGQ),
                torch.empty_like(v_BSGV),
                None,
                None,
            )
        saved = q_BTHQ, k_BSGQ, v_BSGV, out_BTHV
        if ctx.fused:
            return *attention_cuda.backward(dout_BTHV, saved, lse_BHT, ctx.scale), None, None
        return *attention_blocks.backward(dout_BTHV, saved, ctx.scale), None, None


def _check(q_BTHQ: Tensor, k_BSGQ: Tensor, v_BSGV: Tensor) -> None:
    B, T, H, Q = q_BTHQ.shape
    _, S, G, _ = v_BSGV.shape
    if k_BSGQ.shape != (B, S, G, Q) or v_BSGV.shape[0] != B or H % G or S < T:
        raise ValueError(
            f"attention of q {list(q_BTHQ.shape)}, k {list(k_BSGQ.shape)}, v {list(v_BSGV.shape)}:"
            " q is [B, T, H, Q], k [B, S, G, Q] and v [B, S, G, V] with T <= S and G dividing H"
        )


def _pairs(q_BTHQ: Tensor, k_BSGQ: Tensor) -> float:
    """Queries times keys of all heads, the visible half of a square."""
    B, T, H, _ = q_BTHQ.shape
    return B * H * T * (k_BSGQ.shape[1] - T / 2)


def _shapes(q_BTHQ: Tensor, v_BSGV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What attention returns, on the meta device."""
    B, T, H, _ = q_BTHQ.shape
    wide = torch.promote_types(q_BTHQ.dtype, torch.float32)
    return (
        q_BTHQ.new_empty(B, T, H, v_BSGV.shape[3]),
        q_BTHQ.new_empty(B, H, T, dtype=wide),
        q_BTHQ.new_empty(H, dtype=torch.float32),
    )
