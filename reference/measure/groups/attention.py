"""Attention forward and backward: a model's own heads and heads of equal widths, over sequence
lengths.

Legend: B batch, T tokens, H heads, Q query-key width, V value width. FLOP are those of the causal
half, two products forward and five backward (Dao 2023, FlashAttention-2, arXiv:2307.08691, section
4.1), bytes those of a kernel that never writes the score matrix; so on a CPU, whose kernel may
write it, the share that comes out is low.
"""

from __future__ import annotations

import torch

from reference.kernels.attention import attention
from reference.measure.case import BF16, TYPES, WIDTH, Case, Setting, Skip, of_reach, random, timed
from reference.measure.clock import Call
from twin.spec.model import LatentAttention, ModelSpec

LSE = 4
"""Bytes of the fp32 log-sum-exp per head and token."""
WIDE: tuple[int, int] = (192, 128)
"""Query-key and value width of Kimi K2's heads."""
DEPTH = {False: 1, True: 3}
"""Kernels that the twin counts, forward and backward: rowsum(dO * O), the main one, a cast."""


def cases(setting: Setting) -> list[Case | Skip]:
    """Each head shape at each length, forward and backward."""
    found = [
        _case(heads, Q, V, T, backward=backward)
        for heads, Q, V in head_shapes(setting)
        for T in _lengths(setting)
        for backward in (False, True)
    ]
    return of_reach(found, "attention", setting)


def head_shapes(setting: Setting) -> list[tuple[int, int, int]]:
    """(heads, Q, V): the model's; on a GPU also twice as many of them, which Kimi K2's report
    weighs against its 64 (section 2.3); as many with Q cut to V; and, since narrow heads come less
    close to the peak, as many of Kimi K2's widths or, where these are the model's, of half."""
    heads, Q, V = widths(setting.spec)
    more = [(2 * heads, Q, V)] if setting.cuda else []
    other = (Q // 2, V // 2) if (Q, V) == WIDE else WIDE
    return list(dict.fromkeys([(heads, Q, V), *more, (heads, V, V), (heads, *other)]))


def widths(spec: ModelSpec) -> tuple[int, int, int]:
    """Heads, query-key width and value width of a model."""
    a = spec.attention
    if isinstance(a, LatentAttention):
        return a.heads, a.qk_nope_head_dim + a.qk_rope_head_dim, a.v_head_dim
    return a.heads, a.head_dim, a.head_dim


def _lengths(setting: Setting) -> tuple[int, ...]:
    if setting.quick:
        return (64, 256)
    return (512, 1024, 2048, 4096, 8192) if setting.cuda else (64, 128, 256, 512, 1024, 2048)


def _case(heads: int, Q: int, V: int, T: int, *, backward: bool) -> Case:
    def make(device: torch.device) -> Call:
        q, k, v = (random(device, TYPES[BF16], 1, T, heads, w) for w in (Q, Q, V))
        if not backward:
            return lambda: attention(q, k, v, Q**-0.5)
        inputs = [one.requires_grad_() for one in (q, k, v)]
        out, *_ = attention(q, k, v, Q**-0.5)
        dout = torch.randn_like(out)
        return lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True)

    pairs = float(T * T * heads)  # 2 FLOP x half of the score matrix
    inputs = WIDTH[BF16] * T * heads * 2 * (Q + V)
    lse = LSE * T * heads
    flop = pairs * (3 * Q + 2 * V if backward else Q + V)
    size = float((2 if backward else 1) * inputs + lse)
    op = "attention_backward" if backward else "attention_forward"
    shape = {"batch": 1, "tokens": T, "heads": heads, "query_key": Q, "value": V}
    return Case(op, shape, BF16, flop, size, DEPTH[backward], timed(make, size))
