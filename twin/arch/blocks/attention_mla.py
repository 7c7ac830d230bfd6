"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1), training form.

Queries, and keys with values, pass through a low-rank latent with its own RMSNorm; all heads share
one rotary key. In training keys and values are made whole, per head (nothing is absorbed).

Tensor parallel as in Megatron-LM (`multi_latent_attention.py`): down-projections and latent norms
are replicated and work on the rank's own tokens; the up-projections are cut by head, so the small
latents, not the hidden state, cross the tensor group. No biases: no released model has them here.
"""

from __future__ import annotations

from twin.arch.attention import Heads, core
from twin.arch.fp8 import attention_out, cast, projection
from twin.arch.kernels import ELEMENT, norm, streaming
from twin.arch.ops import Item, Op, Shape, Work
from twin.arch.parameters import Parameter, enter, leave, matrix, norm_gains, regather
from twin.spec.model import LatentAttention, ModelSpec


def heads(attention: LatentAttention, tensor: int = 1) -> Heads:
    """The heads on one tensor rank."""
    own = attention.heads // tensor
    return Heads(
        own, own, attention.qk_nope_head_dim + attention.qk_rope_head_dim, attention.v_head_dim
    )


def parameters(attention: LatentAttention, model: ModelSpec) -> tuple[Parameter, ...]:
    """The weights of one attention block, latent norms included."""
    all_heads, rank = heads(attention), attention.kv_lora_rank
    keys_values = attention.heads * (attention.qk_nope_head_dim + attention.v_head_dim)
    latent = rank + attention.qk_rope_head_dim
    return (
        *_query_parameters(attention, model, all_heads.query * all_heads.qk_dim),
        matrix("kv_down", "attention", (model.hidden, latent), "replicated"),
        *norm_gains("kv_norm", "rmsnorm", rank, "attention"),
        matrix("kv_up", "attention", (rank, keys_values), "columns"),
        matrix("out", "attention", (all_heads.query * all_heads.v_dim, model.hidden), "rows"),
    )


def _query_parameters(
    attention: LatentAttention, model: ModelSpec, queries: int
) -> tuple[Parameter, ...]:
    rank = attention.q_lora_rank
    if rank is None:
        return (matrix("q", "attention", (model.hidden, queries), "columns"),)
    return (
        matrix("q_down", "attention", (model.hidden, rank), "replicated"),
        *norm_gains("q_norm", "rmsnorm", rank, "attention"),
        matrix("q_up", "attention", (rank, queries), "columns"),
    )


def items(attention: LatentAttention, model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
    """From the normed hidden state to the block's output, before the residual."""
    own = heads(attention, shape.tensor)
    tokens, hidden = shape.tokens, ELEMENT * shape.tokens * model.hidden
    values = own.query * own.v_dim
    return (
        *_queries(attention, model, shape, own),
        *_keys_values(attention, model, shape, own),
        _rope(attention, shape, own),
        *core(own, shape, model.dropout),
        *attention_out(shape, (tokens, values, model.hidden)),
        *leave("attention_reduce", hidden, shape),
    )


def _queries(
    attention: LatentAttention, model: ModelSpec, shape: Shape, own: Heads
) -> tuple[Item, ...]:
    tokens, width = shape.tokens, own.query * own.qk_dim
    made = ELEMENT * tokens * width
    rank = attention.q_lora_rank
    if rank is None:
        size = ELEMENT * tokens * model.hidden
        return (
            *enter("q_gather", size, shape, shape.gathered),
            *projection("q_projection", shape, (tokens, model.hidden, width), made),
            *regather("q_regather", size, shape, shape.gathered),
        )
    local, size = shape.local_tokens, ELEMENT * tokens * rank
    return (
        *projection("q_down", shape, (local, model.hidden, rank), ELEMENT * local * rank),
        *cast(norm("q_norm", local, rank), shape),
        *enter("q_gather", size, shape, shape.gathered),
        *projection("q_up", shape, (tokens, rank, width), made),
        *regather("q_regather", size, shape, shape.gathered),
    )


def _keys_values(
    attention: LatentAttention, model: ModelSpec, shape: Shape, own: Heads
) -> tuple[Item, ...]:
    """`kv_up` is charged the values; the keys, completed by the rotary part, go to `mla_rope`."""
    tokens, local, rank = shape.tokens, shape.local_tokens, attention.kv_lora_rank
    latent = rank + attention.qk_rope_head_dim
    width = own.key_value * (attention.qk_nope_head_dim + own.v_dim)
    values = ELEMENT * tokens * own.key_value * own.v_dim
    return (
        *projection("kv_down", shape, (local, model.hidden, latent), ELEMENT * local * latent),
        *cast(norm("kv_norm", local, rank), shape),
        # In bf16 for all precisions: the rotary key, which no product reads, is part of it.
        *enter("kv_gather", ELEMENT * tokens * latent, shape),
        *projection("kv_up", shape, (tokens, rank, width), values),
        *regather("kv_regather", ELEMENT * tokens * rank, shape, shape.gathered),
    )


def _rope(attention: LatentAttention, shape: Shape, own: Heads) -> Op:
    """Rotates the rotary part of the queries in place; builds whole keys from their two parts and
    copies the values out of the up-projection. Two kernels, as Megatron-LM's fused MLA rope."""
    rows, rope = ELEMENT * shape.tokens, attention.qk_rope_head_dim
    keys = rows * own.key_value * own.qk_dim
    moved = Work(
        0.0,
        2 * rows * own.query * rope
        + rows * (own.key_value * attention.qk_nope_head_dim + rope)
        + keys
        + 2 * rows * own.key_value * own.v_dim,
        2,
    )
    return streaming("mla_rope", moved, moved, keys, keys, "rotary")
