"""The attention core, between the projections: one flash kernel, or separate kernels.

Flash: only the causal half of the score matrix is computed; backward needs five matrix products
against two, 2.5 times the FLOP when query-key and value widths are equal (Dao 2023,
FlashAttention-2, arXiv:2307.08691, section 4.1). A real kernel also computes the masked part of the
tiles on the diagonal, tile / sequence more: the half is too low for short sequences. Where layers
attend to a window the op is that of the mean layer; that windows have few FLOP for each byte is the
ramp's to say (windows of 128 and heads of 64 by cuDNN 9.22 on GB200: 161 TFLOP/s forward and 182
backward; the profile says 170 and 154). Unfused: the whole score matrix is computed, masked and
moved through memory at every step (Korthikanti et al. 2022, arXiv:2205.05198, section 4.1); a
grouped key-value head is read in place, without a copy per query head.

Context parallelism cuts the sequence over ranks: queries stay where they are, keys and values of
the whole sequence are all-gathered, their gradients reduce-scattered, and backward gathers keys and
values once more, since only the rank's own are kept (Llama 3, arXiv:2407.21783, section 3.3.2;
Megatron-LM, context_parallel.rst). A rank has chunks i and 2 cp - 1 - i of 2 cp, so that each does
the same share of the causal half. Nothing hides these collectives, as in Llama 3; a ring that
passes keys and values on under the kernels (Megatron-LM's `p2p`) would.
"""

from __future__ import annotations

from dataclasses import dataclass

from twin.arch.kernels import ELEMENT, MASK, SINGLE, streaming
from twin.arch.ops import Exchange, Item, Op, Shape, Work


@dataclass(frozen=True, slots=True)
class Heads:
    """Attention heads on one rank: how many query and key-value heads, and their widths; in the
    `windowed` share of layers a query has at most `window` keys, or if `chunked` those of its own
    chunk of that length."""

    query: int
    key_value: int
    qk_dim: int
    v_dim: int
    window: int = 0
    windowed: float = 0.0
    chunked: bool = False

    def keys(self, sequence: int) -> float:
        """Twice the keys of the mean query and layer, causal: the length of the sequence, but for
        windows."""
        window = min(self.window, sequence)
        if self.chunked:
            whole, rest = divmod(sequence, max(1, window))
            near = (whole * window * window + rest * rest) / max(1, sequence)
        else:
            near = 2 * window - window * window / max(1, sequence)
        return (1.0 - self.windowed) * sequence + self.windowed * near

    def read(self, cached: float) -> float:
        """Tokens that one further token reads of so many, in the mean layer; of its own chunk half
        on average."""
        near = min(cached, self.window)
        near = near / 2 if self.chunked and cached > self.window else near
        return (1.0 - self.windowed) * cached + self.windowed * near

    def earlier(self, new: int, cached: float) -> float:
        """Cached tokens that the mean one of so many new tokens reads, in the mean layer."""
        if not self.windowed:
            return cached
        both = round(new + cached)
        pairs = (both * self.keys(both) - cached * self.keys(round(cached))) / 2
        return pairs / new - self.keys(new) / 2


def causal_flop(heads: Heads, sequence: int) -> float:
    """Forward FLOP per token of causal attention: on average sequence / 2 keys per query, fewer
    with a window, a product of the query-key width and one of the value width, 2 FLOP per
    multiply-add."""
    return 2.0 * heads.query * (heads.qk_dim + heads.v_dim) * heads.keys(sequence) / 2


def core(heads: Heads, shape: Shape, dropout: bool) -> tuple[Item, ...]:
    """The attention core, with what context ranks exchange around it."""
    ops = (_flash(heads, shape),) if shape.flash else _unfused(heads, shape, dropout)
    if shape.context == 1:
        return ops
    _, key, value, _ = _sizes(heads, shape)
    size = float(key + value)
    return (
        Exchange("context_gather", "context", size, "all_gather", "reduce_scatter"),
        *ops,
        Exchange("context_regather", "context", size, None, "all_gather"),
    )


def _sizes(heads: Heads, shape: Shape) -> tuple[int, int, int, int]:
    """Bytes of queries, keys, values and the output: the rank's own queries against keys and values
    of whole sequences."""
    rows, all_rows = ELEMENT * shape.tokens, ELEMENT * shape.tokens * shape.context
    return (
        rows * heads.query * heads.qk_dim,
        all_rows * heads.key_value * heads.qk_dim,
        all_rows * heads.key_value * heads.v_dim,
        rows * heads.query * heads.v_dim,
    )


def _flash(heads: Heads, shape: Shape) -> Op:
    """Keeps the log-sum-exp (fp32 per head and token), and its output where the projection behind
    it may run again (`Shape.separate`); dropout draws its mask again. Backward: a kernel for
    rowsum(dO * O), the main one (S, dP, dV, dQ, dK), one that casts dQ."""
    query, key, value, output = _sizes(heads, shape)
    lse = SINGLE * shape.tokens * heads.query
    pair = (
        shape.tokens * heads.keys(shape.sequence) * heads.query
    )  # 2 FLOP x half of the score matrix
    width = (heads.qk_dim + heads.v_dim) / 2
    forward = Work(
        float(pair * (heads.qk_dim + heads.v_dim)),
        query + key + value + output + lse,
        1,
        width=width,
    )
    backward = Work(
        float(pair * (3 * heads.qk_dim + 2 * heads.v_dim)),
        2 * (query + key + value + output) + lse,
        3,
        width=width,
    )
    kept = float(lse + output * shape.separate)
    whole = shape.sequence // shape.context
    return Op(
        "attention_flash", "attention", forward, backward, saved=kept, output=output, queries=whole
    )


def _unfused(heads: Heads, shape: Shape, dropout: bool) -> tuple[Op, ...]:
    """QK^T; softmax with scale and mask, fused; dropout; times V. Each product's backward is two
    like it."""
    query, key, value, output = _sizes(heads, shape)
    elements = shape.tokens * shape.sequence * heads.query
    scores = ELEMENT * elements
    up = Work(2.0 * elements * heads.qk_dim, query + key + scores, 1)
    down = Work(2.0 * elements * heads.v_dim, scores + value + output, 1)
    softmax = streaming(
        "attention_softmax", Work(0.0, 2 * scores, 1), Work(0.0, 3 * scores, 1), scores, scores
    )
    mask = MASK * elements
    moved = Work(0.0, 2 * scores + mask, 1)
    drop = streaming("attention_dropout", moved, moved, scores + mask, scores)
    return (
        Op("attention_scores", "attention", up, up + up, output=scores),
        softmax,
        *((drop,) if dropout else ()),
        Op("attention_values", "attention", down, down + down, output=output),
    )
