"""Multi-head attention, grouped-query when there are fewer key-value heads (arXiv:2305.13245).

One GEMM makes queries, keys and values; norms over heads and rotary positions follow where the
model has them. A norm over all heads together (MiniMax-M2, OLMo 2) moves as much; that tensor ranks
sum its squares, 4 bytes per token, is left out. Tensor parallel by head (Shoeybi et al. 2019,
arXiv:1909.08053, section 3). Sinks (a learned logit per head in the softmax, gpt-oss) weigh
something and cost nothing else. A gate on the
output (Qwen3-Next) is as wide as the queries, made by the same product, and multiplied behind a
sigmoid by one kernel.

With more tensor ranks than key-value heads, several ranks share a head. Megatron-LM
(megatron/core/transformer/attention.py, `get_query_key_value_tensors`) still cuts the projection
evenly, so that no weight and no gradient is there twice. It gathers queries, keys and values of all
heads over the tensor ranks, and every rank takes its query heads and one key-value head. Backward
reduce-scatters the gradient of the gathered tensor, which sums those of a shared head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from twin.arch.attention import Heads, core
from twin.arch.fp8 import attention_out, projection
from twin.arch.kernels import ELEMENT, norm, streaming
from twin.arch.ops import Exchange, Item, Op, Shape, Work
from twin.arch.parameters import Parameter, enter, leave, matrix, norm_gains, regather, vector
from twin.spec.model import GroupedAttention, ModelSpec


def heads(attention: GroupedAttention, tensor: int = 1) -> Heads:
    """The heads on one tensor rank; at least one key-value head, which ranks then share."""
    return Heads(
        attention.heads // tensor,
        max(1, attention.kv_heads // tensor),
        attention.head_dim,
        attention.head_dim,
        attention.window or 0,
        windowed(attention),
        attention.chunked,
    )


def windowed(attention: GroupedAttention) -> float:
    """Share of the layers whose attention has a window."""
    if attention.window is None:
        return 0.0
    return 1.0 - (1.0 / attention.full_every if attention.full_every else 0.0)


def parameters(attention: GroupedAttention, model: ModelSpec) -> tuple[Parameter, ...]:
    """The weights of one attention block; queries, keys and values count as matrices of their own,
    though one GEMM uses them together. A bias on the output projection is replicated: it is
    added once, after the sum over tensor ranks."""
    queries = attention.heads * attention.head_dim
    keys = attention.kv_heads * attention.head_dim
    return (
        matrix("q", "attention", (model.hidden, queries), "columns"),
        *((matrix("gate", "attention", (model.hidden, queries), "columns"),) * attention.gated),
        matrix("kv", "attention", (model.hidden, keys), "columns", 2),
        matrix("out", "attention", (queries, model.hidden), "rows"),
        *_vectors(attention, model, queries + 2 * keys),
    )


def _vectors(attention: GroupedAttention, model: ModelSpec, width: int) -> Iterator[Parameter]:
    """Biases, norms and sinks of one attention block, whose queries, keys and values are `width`
    wide together."""
    if attention.bias or attention.qkv_bias:
        yield vector("qkv.bias", "attention", width, "rows")
    if attention.bias:
        yield vector("out.bias", "attention", model.hidden)
    if attention.qk_norm_whole:
        yield vector("q_norm.gain", "attention", attention.heads * attention.head_dim, "rows")
        yield vector("k_norm.gain", "attention", attention.kv_heads * attention.head_dim, "rows")
    elif attention.qk_norm:
        yield from norm_gains("q_norm", "rmsnorm", attention.head_dim, "attention")
        yield from norm_gains("k_norm", "rmsnorm", attention.head_dim, "attention")
    if attention.sinks:
        yield vector("sinks", "attention", attention.heads, "rows")


def items(attention: GroupedAttention, model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
    """From the normed hidden state to the block's output, before the residual."""
    own, tokens = heads(attention, shape.tensor), shape.tokens
    values = own.query * own.v_dim
    hidden = ELEMENT * tokens * model.hidden
    bias = attention.bias or attention.qkv_bias
    return (
        *enter("attention_gather", hidden, shape, shape.gathered),
        *_projections(attention, shape, model.hidden, bias),
        *regather("attention_regather", hidden, shape, shape.gathered),
        *_shared_heads(attention, shape),
        *_queries_keys(attention, model, own, tokens),
        *core(own, shape, model.dropout),
        *((_gate(tokens * values),) if attention.gated else ()),
        *attention_out(shape, (tokens, values, model.hidden), attention.bias),
        *leave("attention_reduce", hidden, shape),
    )


def _projections(
    attention: GroupedAttention, shape: Shape, hidden: int, bias: bool
) -> tuple[Op, ...]:
    """Queries, keys and values: one product, or one each. What ranks gather is kept there."""
    query = attention.heads * attention.head_dim // shape.tensor * (1 + attention.gated)
    key = attention.kv_heads * attention.head_dim // shape.tensor
    fused, separate = {"qkv": query + 2 * key}, {"q": query, "k": key, "v": key}
    widths = separate if shape.separate else fused
    kept = 0 if shape.tensor > attention.kv_heads else ELEMENT * shape.tokens
    return tuple(
        op
        for name, width in widths.items()
        for op in projection(name, shape, (shape.tokens, hidden, width), kept * width, bias)
    )


def _shared_heads(attention: GroupedAttention, shape: Shape) -> tuple[Item, ...]:
    """Queries, keys and values of all heads, gathered over tensor ranks that share key-value heads,
    and copied into the order of heads: they arrive rank by rank. Backward makes the opposite copy
    before the sum. Kept are the rank's own heads."""
    if shape.tensor <= attention.kv_heads:
        return ()
    own = heads(attention, shape.tensor)
    width = (attention.heads + 2 * attention.kv_heads) * attention.head_dim
    whole = float(ELEMENT * shape.tokens * width)
    kept = float(ELEMENT * shape.tokens * (own.query + 2 * own.key_value) * own.qk_dim)
    copy = Work(0.0, 2 * whole, 1)
    return (
        Exchange("heads_gather", "tensor", whole, "all_gather", "reduce_scatter"),
        streaming("heads_order", copy, copy, kept, kept),
    )


def _gate(values: int) -> Op:
    """The output times the sigmoid of its gate. Keeps what attention gave; backward reads both and
    the gradient, and writes both gradients."""
    size = float(ELEMENT * values)
    return streaming("attention_gate", Work(0.0, 3 * size, 1), Work(0.0, 5 * size, 1), size, size)


def _queries_keys(
    attention: GroupedAttention, model: ModelSpec, own: Heads, tokens: int
) -> tuple[Op, ...]:
    """From the projected queries and keys to those that the core reads and keeps. They lie where
    the last tensor was written: the projection's, or that of the norms over heads. Where the norms'
    is rotated in place it is charged to the rotation, since norms that run again do not bring it
    back."""
    queries = norm("q_norm", tokens * own.query, own.qk_dim)
    keys = norm("k_norm", tokens * own.key_value, own.qk_dim)
    norms = (queries, keys) if attention.qk_norm or attention.qk_norm_whole else ()
    if not model.rotary or model.learned_positions:
        return norms
    kept = sum(one.saved for one in norms)
    return (*(replace(one, saved=0.0) for one in norms), _rope(own, tokens, kept))


def _rope(own: Heads, tokens: int, kept: float) -> Op:
    """Rotates queries and keys in place, one kernel for each."""
    size = ELEMENT * tokens * (own.query + own.key_value) * own.qk_dim
    moved = Work(0.0, 2 * size, 2)
    return streaming("rope", moved, moved, kept, 0.0, "rotary")
