"""Multi-head attention, grouped-query when there are fewer key-value heads (arXiv:2305.13245).

One GEMM makes queries, keys and values; rotary positions follow unless the model learns its
positions. Tensor parallel by head (Shoeybi et al. 2019, arXiv:1909.08053, section 3).
"""

from __future__ import annotations

from twin.arch.attention import Heads, core
from twin.arch.kernels import ELEMENT, linear, streaming
from twin.arch.ops import Item, Op, Shape, Work
from twin.arch.parameters import Parameter, matrix, vector
from twin.arch.sharding import enter, leave, regather
from twin.spec.model import GroupedAttention, ModelSpec


def heads(attention: GroupedAttention, tensor: int = 1) -> Heads:
    """The heads on one tensor rank."""
    return Heads(
        attention.heads // tensor,
        attention.kv_heads // tensor,
        attention.head_dim,
        attention.head_dim,
    )


def parameters(attention: GroupedAttention, model: ModelSpec) -> tuple[Parameter, ...]:
    """The weights of one attention block; queries, keys and values count as matrices of their own,
    though one GEMM uses them together. A bias on the output projection is replicated: it is
    added once, after the sum over tensor ranks."""
    queries = attention.heads * attention.head_dim
    keys = attention.kv_heads * attention.head_dim
    weights = (
        matrix("q", "attention", (model.hidden, queries), "columns"),
        matrix("kv", "attention", (model.hidden, keys), "columns", 2),
        matrix("out", "attention", (queries, model.hidden), "rows"),
    )
    if not attention.bias:
        return weights
    return (
        *weights,
        vector("qkv.bias", "attention", queries + 2 * keys, "rows"),
        vector("out.bias", "attention", model.hidden),
    )


def items(attention: GroupedAttention, model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
    """From the normed hidden state to the block's output, before the residual."""
    own, tokens = heads(attention, shape.tensor), shape.tokens
    width = (own.query + 2 * own.key_value) * own.qk_dim
    values = own.query * own.v_dim
    hidden = ELEMENT * tokens * model.hidden
    made = ELEMENT * tokens * width
    return (
        *enter("attention_gather", hidden, shape),
        linear("qkv", tokens, model.hidden, width, made, attention.bias),
        *regather("attention_regather", hidden, shape),
        *(() if model.learned_positions else (_rope(own, tokens),)),
        *core(own, shape, model.dropout),
        # Its input, the core's output, stays when the core is recomputed: kept here.
        linear(
            "attention_out", tokens, values, model.hidden, ELEMENT * tokens * values, attention.bias
        ),
        *leave("attention_reduce", hidden, shape),
    )


def _rope(own: Heads, tokens: int) -> Op:
    """Rotates queries and keys in place, one kernel for each."""
    size = ELEMENT * tokens * (own.query + own.key_value) * own.qk_dim
    moved = Work(0.0, 2 * size, 2)
    return streaming("rope", moved, moved, 0.0, 0.0)
