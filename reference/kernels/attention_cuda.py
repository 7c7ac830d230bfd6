"""Causal attention on CUDA through torch's fused kernels, with the largest logits beside it.

On Hopper FlashAttention-3 where it is installed, which torch then puts behind its own flash kernel.
Else cuDNN's, which takes keys wider than values (192/128 on Hopper), too; where torch says that
cuDNN cannot, FlashAttention-2, which wants one width, so that values are padded with zeros. None
reports logits: `attention_triton` finds each head's largest in a pass of its own over queries and
keys, about 0.6 of the forward's arithmetic at 192/128, but only for rows whose log-sum-exp says
that they may exceed what matters.

Legend: B batch, T queries and keys, H heads, G kv heads, Q query-key width, V value width.
"""

# The fused kernels together with their log-sum-exp have no public name.
# ruff: noqa: SLF001

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final, Literal

import torch
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_cudnn_attention, can_use_flash_attention
from torch.nn import attention as torch_attention
from torch.nn.functional import pad

from reference.kernels import attention_blocks
from reference.kernels.libraries import Choice, UnfitError, agree, choose, drawn, installed
from reference.kernels.path import by_triton

aten = torch.ops.aten
Fused = Literal["flash 3", "torch"]
"""Whose flash kernel torch has, and whether it goes before cuDNN's."""
_HOPPER: Final = 9
"""FlashAttention-3 runs on this generation alone."""
_TRIAL: Final = (1, 256, 2, 192)


@cache
def fused_attention(device: torch.device) -> Choice[Fused]:
    """What computes attention on a GPU."""
    candidates: dict[str, Callable[[], Fused]] = {
        "FlashAttention-3": lambda: _flash_3(device),
        "cuDNN or FlashAttention-2 of torch": lambda: "torch",
    }
    return choose("attention", candidates, lambda fused: _try(fused, device))


def _flash_3(device: torch.device) -> Fused:
    if torch.cuda.get_device_capability(device)[0] != _HOPPER:
        raise UnfitError("is for Hopper")
    installed("flash_attn_interface")
    torch_attention.activate_flash_attention_impl("FA3")
    return "flash 3"


def _try(fused: Fused, device: torch.device) -> None:
    """Forward and backward at Kimi K2's widths; what fails leaves torch's own kernel in place."""
    q, k, dout = (drawn(*_TRIAL, device=device, seed=seed) for seed in (1, 2, 3))
    v, dout, scale = drawn(*_TRIAL, device=device, seed=4)[..., :128], dout[..., :128], 192**-0.5
    try:
        out, lse = _forward(fused, *_by_head(q, k, v), scale)
        out_BTHV = out.transpose(1, 2).contiguous()
        made = _backward(fused, dout, (q, k, v, out_BTHV), lse, scale)
        want, _, _ = attention_blocks.forward(q, k, v, scale)
        agree((out_BTHV, *made), (want, *attention_blocks.backward(dout, (q, k, v, want), scale)))
    except BaseException:
        torch_attention.restore_flash_attention_impl()
        raise


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

    fused = fused_attention(q_BTHQ.device).compute
    out, lse_BHT = _forward(fused, *_by_head(q_BTHQ, k_BSGQ, v_BSGV), scale)
    max_logit_H = attention_triton.max_logit(q_BTHQ, k_BSGQ, scale, lse_BHT, exact_above)
    return out.transpose(1, 2).contiguous(), lse_BHT, max_logit_H


def _forward(fused: Fused, q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The output, heads before tokens, and the log-sum-exp of each row, [B, H, T]."""
    if _by_cudnn(fused, q, k, v):
        out, lse = aten._scaled_dot_product_cudnn_attention(
            q, k, v, None, True, 0.0, True, scale=scale
        )[:2]
    else:
        wide = pad(v, _missing(fused, q, v))
        out, lse = aten._scaled_dot_product_flash_attention(q, k, wide, 0.0, True, scale=scale)[:2]
        out = out[..., : v.shape[3]]
    return out, lse.view(q.shape[:3])


def backward(
    dout_BTHV: Tensor, saved: tuple[Tensor, Tensor, Tensor, Tensor], lse_BHT: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v; `saved` is q, k, v and out."""
    fused = fused_attention(dout_BTHV.device).compute
    return _backward(fused, dout_BTHV, saved, lse_BHT, scale)


def _backward(
    fused: Fused,
    dout_BTHV: Tensor,
    saved: tuple[Tensor, Tensor, Tensor, Tensor],
    lse_BHT: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    q_BTHQ, k_BSGQ, v_BSGV, out_BTHV = saved
    q, k, v = _by_head(q_BTHQ, k_BSGQ, v_BSGV)
    out, dout = out_BTHV.transpose(1, 2), dout_BTHV.contiguous().transpose(1, 2)
    # Without dropout the kernels read no random state, which the signatures ask for all the same.
    T, V = q.shape[2], v.shape[3]
    if _by_cudnn(fused, q, k, v):
        state = torch.zeros((), dtype=torch.long, device=q.device)
        dq, dk, dv = aten._scaled_dot_product_cudnn_attention_backward(
            *(dout, q, k, v, out, lse_BHT.unsqueeze(-1), state, state),
            *(None, None, None, T, T, 0.0, True),
            scale=scale,
        )
    else:
        state = torch.zeros(2, dtype=torch.uint64, device=q.device)
        width = _missing(fused, q, v)
        dq, dk, dv = aten._scaled_dot_product_flash_attention_backward(
            *(pad(dout, width), q, k, pad(v, width), pad(out, width), lse_BHT),
            *(None, None, T, T, 0.0, True, state, state[0]),
            scale=scale,
        )
        dv = dv[..., :V]
    G = k_BSGQ.shape[2]
    return dq.transpose(1, 2), _sum_shared(dk, G), _sum_shared(dv, G)


def _by_cudnn(fused: Fused, q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether cuDNN computes it: not where FlashAttention-3 can."""
    return _cudnn_takes(q, k, v) and not (fused == "flash 3" and _flash_takes(q, k, v))


def _missing(fused: Fused, q: Tensor, v: Tensor) -> tuple[int, int]:
    """How far values are padded for a flash kernel. FlashAttention-3 takes Kimi K2's widths."""
    if fused == "flash 3" and (q.shape[3], v.shape[3]) == (192, 128):
        return 0, 0
    return 0, q.shape[3] - v.shape[3]


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
