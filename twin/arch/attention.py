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
the same share of the causal half. Nothing hides these collectives, as in Llama 3.

A ring (`Shape.context_ring`) passes keys and values on under the kernel, which does an equal piece
with each rank's, since every rank has an early and a late chunk. Backward passes their gradients
along, too. Outputs and gradients of pieces are added up by kernels of their own (Transformer
Engine, `context_parallel.py`, p2p): each reads two tensors and writes one, of all rows where the
keys are earlier than both chunks or the rank's own, else of half.

Heads instead (`Shape.context_heads`; Jacobs et al. 2023, DeepSpeed-Ulysses, arXiv:2309.14509,
section 3): an all-to-all turns tokens of all heads into all tokens of some heads, and back behind
attention. With fewer key-value heads than ranks each goes to several. Both together (Megatron-LM's
a2a+p2p): neighbours exchange heads, and ranks of different neighbourhoods keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    if shape.context_heads > 1:
        return _by_heads(heads, shape, dropout)
    ops = (_flash(heads, shape),) if shape.flash else _unfused(heads, shape, dropout)
    if shape.context == 1:
        return ops
    query, key, value, output = _sizes(heads, shape)
    size, among = float(key + value), shape.among
    if shape.context_ring:
        passed = Exchange(
            *("context_ring", "context", size, "all_gather", "all_gather"),
            backward_bytes=2 * size,
            among=among,
            circle=shape.context,
        )
        return passed, *ops, _merged(query + size / shape.context, output, shape.context)
    return (
        Exchange("context_gather", "context", size, "all_gather", "reduce_scatter", among=among),
        *ops,
        Exchange("context_regather", "context", size, None, "all_gather", among=among),
    )


def _by_heads(heads: Heads, shape: Shape, dropout: bool) -> tuple[Item, ...]:
    """The core on some of the rank's heads and all tokens of the ranks that exchange heads. Kept
    beside the projections' outputs: key-value heads that the rank has beyond its part."""
    ranks = shape.context_heads
    key_value = max(heads.key_value, ranks)
    width, values = heads.qk_dim + heads.v_dim, heads.query * heads.v_dim
    token = ELEMENT * shape.tokens
    sent = float(token * (heads.query * heads.qk_dim + key_value * width))
    inner = replace(
        shape,
        context=shape.context // ranks,
        context_heads=1,
        among="keys",
    )
    own = replace(heads, query=heads.query // ranks, key_value=key_value // ranks)
    kinds = "all_to_all", "all_to_all"
    kept = float(token * (key_value - heads.key_value) * width)
    return (
        Exchange("context_to_heads", "context", sent, *kinds, saved=kept, among="heads"),
        *core(own, inner, dropout),
        Exchange("context_to_tokens", "context", float(token * values), *kinds, among="heads"),
    )


def _merged(gradients: float, output: float, ranks: int) -> Op:
    """Adds up what the pieces of a ring give: outputs, and gradients of so many bytes."""
    pieces = 3 * (3 * ranks + 1) / 4
    forward = Work(0.0, pieces * output, 2 * ranks)
    return streaming("context_merge", forward, Work(0.0, pieces * gradients, 2 * ranks), 0.0, 0.0)


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
