"""The largest attention logit of every head, in Triton: queries times keys, nothing written back
but one maximum per block of rows.

A row's log-sum-exp is at least its largest logit, and fused attention returns it. So a block whose
log-sum-exp nowhere exceeds what the caller asks exactness above needs no product.

Legend: B batch, T queries, S keys seen, H heads, G kv heads, Q query-key width, N blocks of rows,
m rows of a block, n keys of a block, c columns of a block.
"""

# Inside a kernel Triton's language rules: tensors are pointers, sizes integers or constants.
# ruff: noqa: ANN001, ANN202, PLR0913, PLR0917
# pyright: reportCallIssue=false, reportArgumentType=false, reportGeneralTypeIssues=false, reportReturnType=false

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs

_ROWS, _KEYS, _COLUMNS = 128, 128, 64
"""Block sizes, OURS: Hopper's matrix units take 64 rows per warp group; 192 is 3 x 64 columns."""


def max_logit(
    q_BTHQ: Tensor,
    k_BSGQ: Tensor,
    scale: float,
    lse_BHT: Tensor | None = None,
    exact_above: float = -math.inf,
) -> Tensor:
    """The largest of `scale * q . k` over the batch and visible pairs, fp32: [H].

    Query t sees keys s <= t + S - T. Products of bf16 are exact and add up in fp32. With the rows'
    log-sum-exps a value at or below `exact_above` is an upper bound: their largest.
    """
    B, T, H, Q = q_BTHQ.shape
    S, G = k_BSGQ.shape[1:3]
    q_BTHQ, k_BSGQ = q_BTHQ.contiguous(), k_BSGQ.contiguous()
    blocks = triton.cdiv(T, _ROWS)
    max_NBH = torch.empty(blocks, B, H, dtype=torch.float32, device=q_BTHQ.device)
    bounded = lse_BHT is not None
    lse_BHT = max_NBH if lse_BHT is None else lse_BHT.contiguous()  # any pointer where unused
    _max_logit[(blocks, B * H)](
        *(q_BTHQ, k_BSGQ, lse_BHT, max_NBH, scale, exact_above, T, S, H, G, Q),
        *(bounded, _ROWS, _KEYS, _COLUMNS, knobs.runtime.interpret),
        num_warps=8,
        num_stages=3 if bounded else 2,  # three of the unbounded one spill registers on Blackwell
    )
    return max_NBH.amax((0, 1))


@triton.jit
def _max_logit(
    q_ptr,
    k_ptr,
    lse_ptr,
    max_ptr,
    scale,
    exact_above,
    T,
    S,
    H,
    G,
    Q: tl.constexpr,
    BOUNDED: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDEN: tl.constexpr,
):
    batch, head = (tl.program_id(1) // H).to(tl.int64), tl.program_id(1) % H
    first = tl.program_id(0) * ROWS
    row_m = first + tl.arange(0, ROWS)
    q_row_m = ((batch * T + row_m) * H + head) * Q
    largest_m = tl.full((ROWS,), float("-inf"), tl.float32)
    end = tl.minimum(first + ROWS, T) + S - T
    if BOUNDED:
        lse_place_m = (batch * H + head) * T + row_m
        lse_m = tl.load(lse_ptr + lse_place_m, mask=row_m < T, other=float("-inf"))
        bound = tl.max(lse_m, 0)
        if bound <= exact_above:  # not where it is no number
            largest_m, end = lse_m, 0
    for start in range(0, end, KEYS):
        key_n = start + tl.arange(0, KEYS)
        k_row_n = ((batch * S + key_n) * G + head // (H // G)) * Q
        logits_mn = tl.zeros((ROWS, KEYS), tl.float32)
        for column in tl.static_range(0, Q, COLUMNS):
            column_c = column + tl.arange(0, COLUMNS)
            q_there = (row_m < T)[:, None] & (column_c < Q)[None, :]
            k_there = (key_n < S)[None, :] & (column_c < Q)[:, None]
            q_mc = tl.load(q_ptr + q_row_m[:, None] + column_c[None, :], mask=q_there, other=0.0)
            k_cn = tl.load(k_ptr + k_row_n[None, :] + column_c[:, None], mask=k_there, other=0.0)
            if WIDEN:  # the interpreter's product of bf16 is wrong
                q_mc, k_cn = q_mc.to(tl.float32), k_cn.to(tl.float32)
            logits_mn = tl.dot(q_mc, k_cn, logits_mn, input_precision="ieee")
        seen_mn = (key_n[None, :] <= row_m[:, None] + S - T) & (row_m < T)[:, None]
        logits_mn = tl.where(seen_mn, logits_mn * scale, float("-inf"))
        largest_m = tl.maximum(largest_m, tl.max(logits_mn, 1))
    place = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.store(max_ptr + place, tl.max(largest_m, 0))
