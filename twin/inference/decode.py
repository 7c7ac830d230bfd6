"""The kernels of one decode step: one token of each sequence, against what is cached of it.

The linear layers, norms and experts are those of a training forward pass of as many tokens
(`twin.arch.stack`); what differs is made here. A latent attention works absorbed: queries go into
the space of the latent (h products of batch x nope by nope x rank), one kernel reads the 512 + 64
numbers that a token left behind, and outputs come back (DeepSeek-V2, arXiv:2405.04434, section
2.1.2; FlashMLA). Under tensor ranks each reads the whole latent, as their heads all need it. Of the
routed experts only those that some token chose are read: of E, with n tokens in the engine,
E (1 - (1 - k/E)^n) on average. Dispatch and combine are DeepEP's low-latency kernels: a copy per
chosen expert straight to its GPU, the sums inside the combine, no counts ahead, and no SMs held.

Left out: sampling, quantising the cache, and prediction of several tokens at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import ceil

from twin.arch.kernels import ELEMENT, Matmul, linear, streaming
from twin.arch.ops import Exchange, Item, Layer, LayerKind, Op, Shape, Work
from twin.arch.stack import kinds, layers
from twin.inference.engine import Engine
from twin.spec.model import GroupedAttention, LatentAttention

_MADE_HERE = frozenset({"kv_up", "mla_rope", "attention_flash"})
_INSIDE_THE_EXCHANGE = frozenset(
    {"expert_counts", "dispatch_permute", "dispatch_sort", "combine_sort", "combine_unpermute"}
)


def decode_items(engine: Engine, batch: int, cached: float) -> dict[LayerKind, tuple[Item, ...]]:
    """Kernels and exchanges of each kind of layer, on one GPU, for a step of `batch` sequences in
    each group that have `cached` tokens each, on average."""
    shape = step_shape(engine, batch)
    stack = layers(engine.model, shape)
    found: dict[LayerKind, tuple[Item, ...]] = {}
    for kind, layer in zip(kinds(engine.model), stack, strict=True):
        if kind not in found:
            found[kind] = _items(engine, shape, layer, batch * cached)
    return found


def step_shape(engine: Engine, rows: int) -> Shape:
    """What a layer sees of so many rows of a group; rows are padded to whole ones per rank."""
    spec = engine.spec
    return Shape(
        sequences=1,
        sequence=ceil(rows / spec.tensor) * spec.tensor,
        tensor=spec.tensor,
        expert=spec.gpus if engine.model.moe else 1,
        sequence_parallel=spec.tensor > 1,
        expert_load=spec.expert_load,
        precision=spec.precision,
    )


def _items(engine: Engine, shape: Shape, layer: Layer, tokens: float) -> tuple[Item, ...]:
    if layer.kind == "head":
        return head_items(engine, shape.tokens)
    found: list[Item] = []
    for item in layer.items:
        if item.name in _INSIDE_THE_EXCHANGE:
            continue
        if item.name == "attention_flash":
            found += _attention(engine, shape.tokens, tokens)
        elif item.name in ("experts_up", "experts_down") and isinstance(item, Op):
            found.append(touched(engine, shape, item))
        elif item.name not in _MADE_HERE:
            found.append(item)
    return tuple(found)


def head_items(engine: Engine, rows: int) -> tuple[Item, ...]:
    """The projection of so many rows to the vocabulary, and the logits of one rank gathered."""
    tensor, model = engine.spec.tensor, engine.model
    product = Matmul(rows, model.hidden, model.vocab // tensor)
    gather = Exchange("logits", "tensor", float(ELEMENT * rows * model.vocab), "all_gather", None)
    return (linear("head", product), *((gather,) if tensor > 1 else ()))


def _attention(engine: Engine, rows: int, tokens: float) -> Iterable[Op]:
    """From queries to the input of the output projection: `rows` new tokens that read `tokens`
    cached ones in all."""
    own, tensor, size = engine.model.attention, engine.spec.tensor, engine.cache_element
    heads = own.heads // tensor
    match own:
        case LatentAttention():
            latent, rank = own.kv_lora_rank + own.qk_rope_head_dim, own.kv_lora_rank
            core = _core(rows, tokens, heads, (latent, rank), tokens * size * latent)
            return (
                _absorb("absorb_query", rows, heads, own.qk_nope_head_dim, rank),
                _written(rows, heads * own.qk_rope_head_dim + latent),
                core,
                _absorb("absorb_value", rows, heads, rank, own.v_head_dim),
            )
        case GroupedAttention():
            pairs = max(1, own.kv_heads // tensor)
            read = tokens * size * 2 * pairs * own.head_dim
            width = heads * own.head_dim + 2 * pairs * own.head_dim
            core = _core(rows, tokens, heads, (own.head_dim, own.head_dim), read)
            return (_written(rows, width), core)


def _core(rows: int, tokens: float, heads: int, widths: tuple[int, int], read: float) -> Op:
    """The kernel that reads the cache."""
    both = sum(widths)
    moved = read + ELEMENT * rows * heads * both
    work = Work(2.0 * tokens * heads * both, moved, 1, width=both / 2)
    return Op("attention_cached", "attention", work, Work())


def _absorb(name: str, rows: int, heads: int, inputs: int, outputs: int) -> Op:
    """A product per head with a part of the up-projection, all in one kernel, in bf16."""
    flop = 2.0 * rows * heads * inputs * outputs
    moved = ELEMENT * heads * (inputs * outputs + rows * (inputs + outputs))
    return Op(name, "gemm", Work(flop, float(moved), 1), Work())


def _written(rows: int, values: int) -> Op:
    """Rotary positions and the write to the cache, one kernel."""
    return streaming(
        "cache_write", Work(0.0, 2.0 * ELEMENT * rows * values, 1), Work(), 0.0, 0.0, "rotary"
    )


def touched(engine: Engine, shape: Shape, op: Op) -> Op:
    """A product of the experts that reads only those that some token of the engine chose."""
    moe, product = engine.model.moe, op.forward.product
    if moe is None or product is None:
        return op
    tokens = shape.local_tokens * engine.spec.gpus
    own = moe.experts // shape.expert
    chosen = own * (1.0 - (1.0 - moe.top_k / moe.experts) ** tokens)
    groups = max(1, min(own, ceil(chosen)))
    matmul = Matmul(product.rows, product.k, product.cols, groups, product.precision)
    return replace(op, forward=matmul.forward())
