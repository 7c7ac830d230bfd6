"""Causal attention on CUDA through torch's fused kernels, with the largest logits beside it.

cuDNN's kernel takes keys wider than values (192/128 on Hopper); where torch says that cuDNN cannot,
FlashAttention does, which wants one width, so that values are padded with zeros. Neither reports
logits: `attention_triton` finds each head's largest in a pass of its own over queries and keys,
about 0.6 of the forward's arithmetic at 192/128, but only for rows whose log-sum-exp says that they
may exceed what matters.

Legend: B batch, T queries and keys, H heads, G kv heads, Q query-key width, V value width.
"""

# The fused kernels together with their log-sum-exp have no public name.
# ruff: noqa: SLF001

from __future__ import annotations

import torch
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_cudnn_attention, can_use_flash_attention
from torch.nn.functional import pad

from reference.kernels.path import by_triton

aten = torch.ops.aten


def fuses(q_BTHQ: Tensor, k_BSGQ: Tensor, v_BSGV: Tensor) -> bool:
    """Whether a fused kernel takes these tensors: 2 bytes a value, no cache before the queries."""
    if not by_triton(q_BTHQ) or q_BTHQ.element_size() != 2 or q_BTHQ.shape[1] != k_BSGQ.shape[1]:
        return False
    parts = _by_head(q_BTHQ, k_BSGQ, v_BSGV)
    return _cudnn_takes(*parts) or _flash_takes(*parts)


def forward(
    q_BTHQ: Tensor, k_BSGQ: Tensor, v_BSGV: Tensor, scale: float, exact_above: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`(out_BTHV, lse_BHT, max_logit_H)`; maxima at or below `exact_above` are upper bounds."""
    from reference.kernels import attention_triton  # noqa: PLC0415 - Triton is there with CUDA only

    q, k, v = _by_head(q_BTHQ, k_BSGQ, v_BSGV)
    if _cudnn_takes(q, k, v):
        out, lse = aten._scaled_dot_product_cudnn_attention(
            q, k, v, None, True, 0.0, True, scale=scale
        )[:2]
    else:
        wide = pad(v, (0, q.shape[3] - v.shape[3]))
        out, lse = aten._scaled_dot_product_flash_attention(q, k, wide, 0.0, True, scale=scale)[:2]
        out = out[..., : v.shape[3]]
    lse_BHT = lse.view(q.shape[:3])
    max_logit_H = attention_triton.max_logit(q_BTHQ, k_BSGQ, scale, lse_BHT, exact_above)
    return out.transpose(1, 2).contiguous(), lse_BHT, max_logit_H


def backward(
    dout_BTHV: Tensor, saved: tuple[Tensor, Tensor, Tensor, Tensor], lse_BHT: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v; `saved` is q, k, v and out."""
    q_BTHQ, k_BSGQ, v_BSGV, out_BTHV = saved
    q, k, v = _by_head(q_BTHQ, k_BSGQ, v_BSGV)
    out, dout = out_BTHV.transpose(1, 2), dout_BTHV.contiguous().transpose(1, 2)
    # Without dropout the kernels read no random state, which the signatures ask for all the same.
    T, V = q.shape[2], v.shape[3]
    if _cudnn_takes(q, k, v):
        state = torch.zeros((), dtype=torch.long, device=q.device)
        dq, dk, dv = aten._scaled_dot_product_cudnn_attention_backward(
            *(dout, q, k, v, out, lse_BHT.unsqueeze(-1), state, state),
            *(None, None, None, T, T, 0.0, True),
            scale=scale,
        )
    else:
        state = torch.zeros(2, dtype=torch.uint64, device=q.device)
        width = (0, q.shape[3] - V)
        dq, dk, dv = aten._scaled_dot_product_flash_attention_backward(
            *(pad(dout, width), q, k, pad(v, width), pad(out, width), lse_BHT),
            *(None, None, T, T, 0.0, True, state, state[0]),
            scale=scale,
        )
        dv = dv[..., :V]
    G = k_BSGQ.shape[2]
    return dq.transpose(1, 2), _sum_shared(dk, G), _sum_shared(dv, G)


def _by_head(q_BTHQ: Tensor, k_BSGQ: Tensor, v_BSGV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Heads before tokens, every query head with keys and values of its own."""
    shared = q_BTHQ.shape[2] // k_BSGQ.shape[2]
    q, k, v = (part.transpose(1, 2) for part in (q_BTHQ, k_BSGQ, v_BSGV))
    if shared == 1:
        return q, k, v
    return q, k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)


def _sum_shared(gradient_BHTW: Tensor, G: int) -> Tensor:
    """[B, T, G, W]: the sum over the query heads of each kv head."""
    gradient_BTHW = gradient_BHTW.transpose(1, 2)
    if gradient_BTHW.shape[2] == G:
        return gradient_BTHW
    return gradient_BTHW.unflatten(2, (G, -1)).sum(3)


def _cudnn_takes(q: Tensor, k: Tensor, v: Tensor) -> bool:
    return can_use_cudnn_attention(SDPAParams(q, k, v, None, 0.0, True, False))


def _flash_takes(q: Tensor, k: Tensor, v: Tensor) -> bool:
    wide = pad(v, (0, q.shape[3] - v.shape[3]))
    if q.shape[3] % 8 or v.shape[3] > q.shape[3]:
        return False
    return can_use_flash_attention(SDPAParams(q, k, wide, None, 0.0, True, False))
