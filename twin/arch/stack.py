"""The whole model as a stack: embedding, transformer layers (dense or with experts), head.

A transformer layer is pre-norm: x + attention(norm(x)), then x + ffn(norm(x)). Layers of one kind
are one shared object, so that depth costs nothing. Multi-token-prediction layers are left out.
"""

from __future__ import annotations

from math import lcm
from typing import Final

from twin.arch.attention import Heads
from twin.arch.blocks import attention_gqa, attention_mla, embedding, ffn_dense, head, moe
from twin.arch.kernels import ELEMENT, layer_input, norm, residual
from twin.arch.ops import Item, Layer, LayerKind, Shape
from twin.arch.parameters import Parameter, matrices, norm_gains, on_rank, weights
from twin.spec.model import GroupedAttention, LatentAttention, ModelSpec

QUERY_KEY: Final = frozenset({"q", "q_up", "kv", "kv_up"})
"""Names of the matrices that make whole queries and keys, in every kind of attention."""


def kinds(model: ModelSpec) -> tuple[LayerKind, ...]:
    """The kind of every layer, in order."""
    between: list[LayerKind] = [
        "moe" if model.has_experts(layer) else "dense" for layer in range(model.layers)
    ]
    return ("embedding", *between, "head")


def layers(model: ModelSpec, shape: Shape) -> tuple[Layer, ...]:
    """Every layer of the model for one micro-batch on one rank.

    Raises ValueError when the shape does not cut the model evenly (see `uneven`).
    """
    wrong = uneven(model, shape)
    if wrong:
        raise ValueError(f"the sharding does not divide {', '.join(wrong)}")
    order = kinds(model)
    made = {kind: _layer(model, shape, kind) for kind in dict.fromkeys(order)}
    return tuple(made[kind] for kind in order)


def uneven(model: ModelSpec, shape: Shape) -> tuple[str, ...]:
    """Dotted names of the sizes that the tensor, context or expert degrees do not divide."""
    sizes = [("model.attention.heads", model.attention.heads, shape.tensor)]
    if isinstance(model.attention, GroupedAttention):
        sizes.append(("model.attention.kv_heads", model.attention.kv_heads, shape.tensor))
    if "dense" in kinds(model):
        sizes.append(("model.ffn.width", model.ffn.width, shape.tensor))
    sizes.append(("model.vocab", model.vocab, shape.tensor))
    if model.moe is not None:
        sizes.append(("model.moe.experts", model.moe.experts, shape.expert))
        sizes.append(("model.moe.width", model.moe.width, shape.expert_tensor))
    slices = shape.tensor if shape.sequence_parallel else 1
    sizes.append(("train.sequence", shape.sequence, sequence_parts(shape.context, slices)))
    return tuple(name for name, size, degree in sizes if size % degree)


def sequence_parts(context: int, slices: int) -> int:
    """Parts of a sequence that have to be of one size: two per context rank, for causal balance
    (`twin.arch.attention`), and per context rank the `slices` of sequence parallelism."""
    balanced = 2 * context if context > 1 else 1
    return lcm(balanced, context * slices)


def parameters_of(model: ModelSpec, kind: LayerKind) -> tuple[Parameter, ...]:
    """The parameter table of one layer."""
    match kind:
        case "embedding":
            return embedding.parameters(model)
        case "head":
            return head.parameters(model)
        case "dense" | "moe":
            return (
                *norm_gains("attention_norm", model.norm, model.hidden),
                *_attention_parameters(model),
                *norm_gains("ffn_norm", model.norm, model.hidden),
                *_ffn_parameters(model, kind),
            )


def heads(model: ModelSpec) -> Heads:
    """The attention heads of one layer, uncut."""
    match model.attention:
        case LatentAttention() as attention:
            return attention_mla.heads(attention)
        case GroupedAttention() as attention:
            return attention_gqa.heads(attention)


def _layer(model: ModelSpec, shape: Shape, kind: LayerKind) -> Layer:
    table = on_rank(parameters_of(model, kind), shape)
    own, shapes = weights(table), matrices(table)
    hidden = float(ELEMENT * shape.local_tokens * model.hidden)
    match kind:
        case "embedding":
            items = embedding.items(model, shape)
            return Layer(kind, items, own, embedding.input_bytes(shape))
        case "head":
            tied = weights(on_rank(head.tied_parameters(model), shape))
            return Layer(kind, head.items(model, shape), own, hidden, tied=tied)
        case "dense" | "moe":
            return Layer(
                kind,
                _transformer(model, shape, kind),
                own,
                hidden,
                shapes,
                heads=model.attention.heads // shape.tensor,
                query_key=sum(row.elements for row in table if row.name in QUERY_KEY),
            )


def _transformer(model: ModelSpec, shape: Shape, kind: LayerKind) -> tuple[Item, ...]:
    tokens, width = shape.local_tokens, model.hidden
    return (
        layer_input(ELEMENT * tokens * width),
        norm("attention_norm", tokens, width),
        *_attention_items(model, shape),
        residual("attention_residual", tokens, width, model.dropout, keep=True),
        norm("ffn_norm", tokens, width),
        *_ffn_items(model, shape, kind),
        residual("ffn_residual", tokens, width, model.dropout, keep=False),
    )


def _attention_parameters(model: ModelSpec) -> tuple[Parameter, ...]:
    match model.attention:
        case LatentAttention() as attention:
            return attention_mla.parameters(attention, model)
        case GroupedAttention() as attention:
            return attention_gqa.parameters(attention, model)


def _attention_items(model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
    match model.attention:
        case LatentAttention() as attention:
            return attention_mla.items(attention, model, shape)
        case GroupedAttention() as attention:
            return attention_gqa.items(attention, model, shape)


def _ffn_parameters(model: ModelSpec, kind: LayerKind) -> tuple[Parameter, ...]:
    if kind == "moe" and model.moe is not None:
        return moe.parameters(model.moe, model)
    return ffn_dense.parameters(model.ffn, model)


def _ffn_items(model: ModelSpec, shape: Shape, kind: LayerKind) -> tuple[Item, ...]:
    if kind == "moe" and model.moe is not None:
        return moe.items(model.moe, model, shape)
    return ffn_dense.items(model.ffn, model, shape)
