"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1), training form.

Queries, and keys with values, pass through a low-rank latent with its own RMSNorm; all heads share
one rotary key. In training keys and values are made whole, per head (nothing is absorbed).

Tensor parallel as in Megatron-LM (`multi_latent_attention.py`): down-projections and latent norms
are replicated and work on the rank's own tokens; the up-projections are cut by head, so the small
latents, not the hidden state, cross the tensor group. No biases: no released model has them here.

With an indexer (DeepSeek-V3.2, arXiv:2512.02556, section 2.1) attention is sparse, and works on
latents: every token reads other keys, which all heads have to share, so the up-projection of keys
multiplies queries, and that of values outputs, as in a decode step. The indexer is whole on every
tensor rank, works on the rank's own tokens, and reads the normed latents of queries and the hidden
state. Its scores, of all tokens before, are one kernel, the choice of the best another. In training
it learns from the main attention's shares of the chosen tokens, which are made once more for it;
its input has no gradient from it. Scores are counted in bf16; released engines have them in FP8.
Keys that a kernel gathers are taken to come from the L2 cache.
"""

from __future__ import annotations

from dataclasses import replace

from twin.arch.attention import Heads, core
from twin.arch.fp8 import attention_out, cast, projection
from twin.arch.kernels import ELEMENT, SINGLE, Matmul, linear, norm, streaming
from twin.arch.ops import Exchange, Item, Op, Shape, Work
from twin.arch.parameters import Parameter, enter, leave, matrix, norm_gains, regather
from twin.spec.model import Indexer, LatentAttention, ModelSpec


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
        *(_indexer_parameters(attention, attention.indexer, model) if attention.indexer else ()),
    )


def _indexer_parameters(
    attention: LatentAttention, indexer: Indexer, model: ModelSpec
) -> tuple[Parameter, ...]:
    """Queries from their latents, one key with a LayerNorm, and a weight per head."""
    read, width = attention.q_lora_rank or model.hidden, indexer.heads * indexer.head_dim
    return (
        matrix("index.q", "attention", (read, width), "replicated"),
        matrix("index.k", "attention", (model.hidden, indexer.head_dim), "replicated"),
        *norm_gains("index_norm", "layernorm", indexer.head_dim, "attention"),
        matrix("index.weights", "attention", (model.hidden, indexer.heads), "replicated"),
    )


def read_heads(attention: LatentAttention, tensor: int = 1) -> Heads:
    """What attention on latents reads: one key of latent and rotary part for all heads, and as the
    value that latent; with an indexer of the chosen tokens only."""
    chosen, rank = attention.indexer, attention.kv_lora_rank
    return Heads(
        attention.heads // tensor,
        1,
        rank + attention.qk_rope_head_dim,
        rank,
        chosen.top_k if chosen else 0,
        float(chosen is not None),
    )


def sparse_flop(attention: LatentAttention, indexer: Indexer, sequence: int) -> float:
    """Forward FLOP per token of scores of all tokens before, and of attention to the chosen. The
    up-projections that move to queries and outputs are counted as weights."""
    own = read_heads(attention)
    scores = float(indexer.heads * indexer.head_dim * sequence)
    return scores + float(own.query * (own.qk_dim + own.v_dim) * own.keys(sequence))


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
    if attention.indexer is not None:
        return (
            *_queries(attention, model, shape, own),
            *_latents(attention, model, shape),
            *_index(attention, attention.indexer, model, shape),
            *_sparse(attention, shape),
            *attention_out(shape, (tokens, values, model.hidden)),
            *leave("attention_reduce", hidden, shape),
        )
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


def _latents(attention: LatentAttention, model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
    """Latents of keys and values, normed, with the rotary key beside: what sparse attention reads
    and keeps."""
    tokens, local, rank = shape.tokens, shape.local_tokens, attention.kv_lora_rank
    latent = rank + attention.qk_rope_head_dim
    rotated = Work(0.0, 2.0 * ELEMENT * tokens * latent, 1)
    kept = float(ELEMENT * tokens * latent)
    return (
        *projection("kv_down", shape, (local, model.hidden, latent), ELEMENT * local * latent),
        replace(norm("kv_norm", local, rank), saved=0.0),
        *enter("kv_gather", ELEMENT * tokens * latent, shape),
        streaming("mla_rope", rotated, rotated, kept, kept, "rotary"),
    )


def _index(
    attention: LatentAttention, indexer: Indexer, model: ModelSpec, shape: Shape
) -> tuple[Item, ...]:
    """From latents of queries and the hidden state to the chosen tokens of each token."""
    local, width = shape.local_tokens, indexer.heads * indexer.head_dim
    read = attention.q_lora_rank or model.hidden
    made = ((read, width), (model.hidden, indexer.head_dim), (model.hidden, indexer.heads))
    names = ("index_q", "index_k", "index_weights")
    # The key is kept for its norm, weights for the scores; queries are kept as they are rotated.
    products = [
        replace(
            linear(name, Matmul(local, *sizes, accumulate=shape.accumulate)),
            backward=Work(),
            saved=0.0 if name == "index_q" else float(ELEMENT * local * sizes[1]),
        )
        for name, sizes in zip(names, made, strict=True)
    ]
    keys = ELEMENT * shape.tokens * indexer.head_dim
    size = float(ELEMENT * local * (width + indexer.head_dim))
    rotated = Work(0.0, 2 * size, 4)
    return (
        *products,
        replace(norm("index_norm", local, indexer.head_dim), saved=0.0),
        *enter("index_gather", keys, shape),
        *_along_context("index_context", float(keys * shape.context), shape),
        streaming("index_rope", rotated, rotated, size, size, "rotary"),
        *_chosen(attention, indexer, shape),
    )


def _chosen(attention: LatentAttention, indexer: Indexer, shape: Shape) -> tuple[Item, ...]:
    """Scores of all tokens before, in fp32, and the best of them. Backward both factors of the
    chosen scores, and the shares of all heads that they are to match, made once more."""
    local, sequence = shape.local_tokens, shape.sequence
    width = indexer.heads * indexer.head_dim
    pairs, near = local * sequence / 2, local * _chosen_keys(indexer, sequence)
    kept = float(SINGLE * local * min(indexer.top_k, sequence))
    read = float(ELEMENT * (local * width + shape.tokens * shape.context * indexer.head_dim))
    written = SINGLE * pairs
    target = 2.0 * near * attention.heads * (attention.kv_lora_rank + attention.qk_rope_head_dim)
    scores = Op(
        "index_scores",
        "attention",
        Work(2.0 * pairs * width, read + written, 1, width=float(indexer.head_dim)),
        Work(4.0 * near * width + target, 2 * read + 4 * SINGLE * near, 4, width=indexer.head_dim),
        output=written,
    )
    best = streaming("index_choice", Work(0.0, 2 * written + kept, 2), Work(), kept, kept)
    gathered = float(SINGLE * shape.tokens * min(indexer.top_k, sequence))
    sliced = shape.tensor > 1 and shape.sequence_parallel
    back = (Exchange("index_chosen", "tensor", gathered, "all_gather", None),) if sliced else ()
    return (scores, best, *back)


def _chosen_keys(indexer: Indexer, sequence: int) -> float:
    """Tokens that the mean token attends to."""
    most = min(indexer.top_k, sequence)
    return most - most * most / (2 * sequence)


def _along_context(name: str, size: float, shape: Shape) -> tuple[Exchange, ...]:
    if shape.context == 1:
        return ()
    return (Exchange(name, "context", size, "all_gather", "reduce_scatter"),)


def _sparse(attention: LatentAttention, shape: Shape) -> tuple[Item, ...]:
    """Queries into the space of latents, attention to the chosen tokens, outputs back. Kept are
    queries, and what attention gives, which is as wide as a latent for each head."""
    own, rank = read_heads(attention, shape.tensor), attention.kv_lora_rank
    queries = float(ELEMENT * shape.tokens * own.query * own.qk_dim)
    kept = replace(shape, flash=True, separate=True)
    return (
        _absorbed("absorb_query", shape, own.query, (attention.qk_nope_head_dim, rank), queries),
        *core(own, kept, dropout=False),
        _absorbed("absorb_value", shape, own.query, (rank, attention.v_head_dim), 0.0),
    )


def _absorbed(name: str, shape: Shape, heads: int, sizes: tuple[int, int], kept: float) -> Op:
    """A product of each head with its part of an up-projection, in bf16, as one grouped product.
    Its backward is that of a product of two tensors: both gradients at once, which no split of the
    backward pass parts."""
    matmul = Matmul(shape.tokens * heads, *sizes, heads, accumulate=shape.accumulate)
    made = linear(name, matmul, kept)
    both = made.backward + made.weight
    return replace(made, kind="grouped_gemm", backward=both, weight=Work(), late=0.0)
