"""The whole model as a stack: embedding, transformer layers (dense or with experts), modules that
predict further tokens, head.

A transformer layer is pre-norm: x + attention(norm(x)), then x + ffn(norm(x)). In a pattern another
mixer may stand for attention (`twin.arch.mixer`), and a layer may have the first or the second
block only. Layers of one sort are one shared object, so that depth costs nothing. A prediction
module is two entries of the stack: `mtp`, whose transformer layer is like the model's last, or
whose layers are those of `mtp_pattern` (Nemotron 3: attention, then experts), and a head with a
norm of its own and the model's projection. Modules may share their weights, which then are there
once. All heads belong to one stage, so the
projection and its gradient are there once; the embedding's table is on that stage a second time,
unless it is the first, too.
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm
from typing import Any, Final

from twin.arch.attention import Heads, causal_flop
from twin.arch.blocks import (
    attention_gqa,
    attention_mla,
    embedding,
    ffn_dense,
    head,
    moe,
    mtp,
    vision,
)
from twin.arch.eager import eager
from twin.arch.fp8 import cast
from twin.arch.kernels import ELEMENT, layer_input, norm, residual
from twin.arch.lora import adapted, adapters
from twin.arch.mixer import Block
from twin.arch.ops import Item, Layer, LayerKind, Matrices, Shape, Weights
from twin.arch.parameters import Parameter, matrices, norm_gains, on_rank, weights
from twin.arch.remembered import remembered
from twin.spec.model import (
    ATTENTION,
    FEED_FORWARD,
    DenseFfn,
    GroupedAttention,
    LatentAttention,
    ModelSpec,
    blocks_of,
    sizes_of,
    word_of,
)

QUERY_KEY: Final = frozenset({"q", "q_up", "kv", "kv_up"})
"""Names of the matrices that make whole queries and keys, in every kind of attention."""


@remembered(64)
def kinds(model: ModelSpec) -> tuple[str, ...]:
    """The sort of every layer of the model itself, in order, without prediction modules: `dense` or
    `moe` where attention comes first, else as in a pattern, with a plus before a feed-forward block
    that stands alone. Layers of other sizes are of another sort."""
    return ("embedding", *(_sort(*model.blocks(layer)) for layer in range(model.layers)), "head")


def _sort(mixer: str, feed: str) -> str:
    if not feed:
        return mixer
    return feed if mixer == "attention" else f"{mixer}+{feed}"


def _blocks(sort: str) -> tuple[str, str]:
    """The mixer and the feed-forward block of a sort of layer."""
    return ("attention", sort) if word_of(sort) in FEED_FORWARD else blocks_of(sort)


def mixer_of(sort: str) -> str:
    """The mixer of a sort of layer, with its sizes; empty where it has none."""
    return "" if sort in ("embedding", "head") else _blocks(sort)[0]


def attends(mixer: str) -> bool:
    """Whether a mixer is the model's attention."""
    return word_of(mixer) in ATTENTION


def block(model: ModelSpec) -> Block | None:
    """The mixer beside attention, with its arithmetic."""
    assert model.mixer is None or isinstance(model.mixer, Block)
    return model.mixer


def attention(model: ModelSpec, mixer: str) -> LatentAttention | GroupedAttention:
    """The attention of layers that a pattern calls so: within its window, or to all before, with
    heads of their own."""
    own = model.attention
    if not model.pattern or not isinstance(own, GroupedAttention):
        return own
    near = word_of(mixer) == "window"
    changed: dict[str, Any] = {"full_every": None} if near else {"window": None}
    changed |= zip(("heads", "kv_heads"), sizes_of(mixer), strict=False)
    return own.model_copy(update=changed)


def attentions(model: ModelSpec) -> tuple[LatentAttention | GroupedAttention, ...]:
    """The attention of all layers, each sort once: the model's own where no layer has any."""
    mixers = dict.fromkeys(mixer for one in kinds(model) if attends(mixer := mixer_of(one)))
    return tuple(attention(model, one) for one in mixers) or (model.attention,)


def dense_widths(model: ModelSpec) -> tuple[int, ...]:
    """Widths of the dense feed-forward blocks of all layers, each once."""
    feeds = (_blocks(one)[1] for one in kinds(model)[1:-1])
    dense = (_ffn(model, one).width for one in feeds if word_of(one) == "dense")
    return tuple(dict.fromkeys(dense))


def _ffn(model: ModelSpec, feed: str) -> DenseFfn:
    """The dense block of layers that a pattern calls so."""
    return model.ffn.model_copy(update=dict(zip(("width",), sizes_of(feed), strict=False)))


@remembered(256)
def layers(model: ModelSpec, shape: Shape) -> tuple[Layer, ...]:
    """Every layer of the model for one micro-batch on one rank: embedding, `model.layers`
    transformer layers, two entries for each prediction module, head.

    Raises ValueError when the shape does not cut the model evenly (see `uneven`).
    """
    wrong = uneven(model, shape)
    if wrong:
        raise ValueError(f"the sharding does not divide {', '.join(wrong)}")
    shapes = _shapes(model, shape)
    made = {own: _layer(model, own[1], own[0]) for own in dict.fromkeys(shapes)}
    *main, last = (made[own] for own in shapes)
    own = replace(shape, expert_load=shape.layer_loads[-1]) if shape.layer_loads else shape
    return (*main, *_prediction(model, own), last)


def _shapes(model: ModelSpec, shape: Shape) -> list[tuple[str, Shape]]:
    """The sort and the shape of every layer: those with experts may differ in their loads, and
    those at the ends multiply in bf16 where a recipe says so."""
    loads, order = iter(shape.layer_loads), kinds(model)
    first, last = shape.bf16_ends
    wide = {*range(1, first + 1), *range(len(order) - 1 - last, len(order) - 1)}
    found: list[tuple[str, Shape]] = []
    for place, kind in enumerate(order):
        own = shape.of_first_and_last if place in wide else shape
        if shape.layer_loads and kind.endswith("moe"):
            own = replace(own, expert_load=next(loads, shape.expert_load))
        found.append((kind, own))
    return found


def uneven(model: ModelSpec, shape: Shape) -> tuple[str, ...]:
    """Dotted names of the sizes that the tensor, context or expert degrees do not divide."""
    sizes: list[tuple[str, int, int]] = []
    for one in attentions(model):
        sizes.append(("model.attention.heads", one.heads, shape.tensor))
        if isinstance(one, GroupedAttention):
            own = one.kv_heads
            pair = (own, shape.tensor) if own >= shape.tensor else (shape.tensor, own)
            sizes.append(("model.attention.kv_heads", *pair))
    sizes += [
        (f"model.mixer.{name}", heads, ranks)
        for name, heads, ranks in mixer_heads(model, shape.tensor, shape.context)
    ]
    sizes += [("model.ffn.width", width, shape.tensor) for width in dense_widths(model)]
    sizes.append(("model.vocab", model.vocab, shape.tensor))
    if model.moe is not None:
        sizes.append(("model.moe.experts", model.moe.experts, shape.expert))
        sizes.append(("model.moe.width", model.moe.width, shape.expert_tensor))
    slices = shape.tensor if shape.sequence_parallel else 1
    sizes.append(("train.sequence", shape.sequence, sequence_parts(shape.context, slices)))
    return tuple(dict.fromkeys(name for name, size, degree in sizes if size % degree))


def mixer_heads(model: ModelSpec, tensor: int, context: int) -> list[tuple[str, int, int]]:
    """Numbers of heads of the mixer beside attention, by field, and the ranks that have to divide
    each: tensor ranks, and context ranks where these exchange heads."""
    own = block(model)
    if own is None:
        return []
    both = [(name, heads, tensor * context) for name, heads in own.heads.items()]
    return [*both, *((name, heads, tensor) for name, heads in own.groups_of_heads.items())]


def sequence_parts(context: int, slices: int) -> int:
    """Parts of a sequence that have to be of one size: two per context rank, for causal balance
    (`twin.arch.attention`), and per context rank the `slices` of sequence parallelism."""
    balanced = 2 * context if context > 1 else 1
    return lcm(balanced, context * slices)


@remembered(256)
def parameters_of(model: ModelSpec, kind: str) -> tuple[Parameter, ...]:
    """The parameter table of one sort of layer."""
    match kind:
        case "embedding":
            return (*embedding.parameters(model), *vision.parameters(model))
        case "head":
            return head.parameters(model)
        case "mtp":
            own = (row for one in _predicting(model) for row in parameters_of(model, one))
            return (*mtp.parameters(model), *own)
        case _:
            mixer, feed = _blocks(kind)
            return (
                *(_mixer_parameters(model, mixer) if mixer else ()),
                *(_feed_parameters(model, feed) if feed else ()),
            )


def mixing(model: ModelSpec, mixer: str, sequence: int) -> float:
    """Forward FLOP per token of what mixes tokens in one layer: causal attention, or the kernels of
    another mixer; 0 where a layer has neither."""
    own = block(model)
    if not mixer:
        return 0.0
    if not attends(mixer) and own is not None:
        return own.flop()
    latent = model.attention
    if isinstance(latent, LatentAttention) and latent.indexer is not None:
        return attention_mla.sparse_flop(latent, latent.indexer, sequence)
    return causal_flop(heads(model, mixer), sequence)


def heads(model: ModelSpec, mixer: str = "attention") -> Heads:
    """The attention heads of one layer, uncut."""
    match attention(model, mixer):
        case LatentAttention() as own:
            return attention_mla.heads(own)
        case GroupedAttention() as own:
            return attention_gqa.heads(own)


def _layer(model: ModelSpec, shape: Shape, kind: str) -> Layer:
    own, frozen, shapes = _weights(model, shape, kind)
    table = on_rank(parameters_of(model, kind), shape)
    hidden = float(ELEMENT * shape.local_tokens * model.hidden)
    match kind:
        case "embedding":
            both = (*embedding.items(model, shape), *vision.items(model, shape))
            items = _frozen(model, shape, both)
            return Layer(kind, items, own, embedding.input_bytes(shape), shapes, frozen=frozen)
        case "head":
            tied = weights(on_rank(head.tied_parameters(model), shape))
            items = _frozen(model, shape, head.items(model, shape))
            return Layer(kind, items, own, hidden, frozen=frozen, tied=tied)
        case _:
            sorts = _predicting(model) if kind == "mtp" else (kind,)
            mixer = next(filter(attends, map(mixer_of, sorts)), None)
            return Layer(
                _role(kind),
                _frozen(model, shape, _transformer(model, shape, kind)),
                own,
                _module_input(model, shape) if kind == "mtp" else hidden,
                shapes,
                frozen=frozen,
                heads=attention(model, mixer).heads // shape.tensor if mixer else 0,
                query_key=sum(row.elements for row in table if row.name in QUERY_KEY),
            )


def _role(kind: str) -> LayerKind:
    """What plans, policies and reports tell layers apart by."""
    if kind == "mtp":
        return "mtp"
    _, feed = _blocks(kind)
    return "moe" if feed == "moe" else "dense" if feed else "mixer"


def _weights(
    model: ModelSpec, shape: Shape, kind: str
) -> tuple[Weights, Weights, tuple[Matrices, ...]]:
    """Of a layer on one rank: what is trained, what is not, and the shapes of trained matrices."""
    table = vision.placed(parameters_of(model, kind), shape.images)
    whole = on_rank(table, shape)
    if shape.lora is None:
        learned = tuple(row for row in whole if vision.trained(row, shape.images))
        still = (row for row in whole if not vision.trained(row, shape.images))
        return weights(learned), weights(still), matrices(learned)
    added = on_rank(adapters(table, shape.lora.rank), shape)
    others = (one for one in added for _ in range(shape.lora.adapters - 1))
    return weights(added), weights((*whole, *others)), matrices(added)


def _frozen(model: ModelSpec, shape: Shape, items: tuple[Item, ...]) -> tuple[Item, ...]:
    """The items, kernel by kernel where nothing fuses them, and with adapters where only these are
    trained."""
    if shape.unfused:
        items = eager(items, model.norm, shape)
    gated = model.ffn.kind == "swiglu" and not shape.separate
    if shape.lora is None:
        return items
    return adapted(items, shape.lora, gated, "adapters" in shape.unfused)


def _transformer(model: ModelSpec, shape: Shape, kind: str) -> tuple[Item, ...]:
    tokens, width = shape.local_tokens, model.hidden
    if kind == "mtp":
        (_, *first), *others = (_transformer(model, shape, one) for one in _predicting(model))
        return (
            layer_input(_module_input(model, shape)),
            *embedding.rows(model, shape, saved=ELEMENT * tokens * width),
            *mtp.items(model, shape),
            *first,
            *(item for layer in others for item in layer),
        )
    mixer, feed = _blocks(kind)
    return (
        layer_input(ELEMENT * tokens * width),
        *(_mixed(model, shape, mixer, alone=not feed) if mixer else ()),
        *(_fed(model, shape, feed) if feed else ()),
    )


def _mixed(model: ModelSpec, shape: Shape, mixer: str, *, alone: bool) -> tuple[Item, ...]:
    """The first half of a layer; `alone`: all of it."""
    tokens, width = shape.local_tokens, model.hidden
    shape = shape.of("attention" if attends(mixer) else "mixer")
    return (
        *cast(norm("attention_norm", tokens, width), shape),
        *_mixer_items(model, shape, mixer),
        *_behind("attention_norm_behind", model, tokens),
        residual("attention_residual", tokens, width, model.dropout, keep=not alone),
    )


def _fed(model: ModelSpec, shape: Shape, feed: str) -> tuple[Item, ...]:
    """The second half of a layer."""
    tokens, width = shape.local_tokens, model.hidden
    shape = shape.of("experts" if feed == "moe" else "dense")
    return (
        *cast(norm("ffn_norm", tokens, width), shape, keep=feed == "moe"),
        *_ffn_items(model, shape, feed),
        *_behind("ffn_norm_behind", model, tokens),
        residual("ffn_residual", tokens, width, model.dropout, keep=False),
    )


def _behind(name: str, model: ModelSpec, tokens: int) -> tuple[Item, ...]:
    """A norm whose output is added, and read by no product: what it keeps is its input."""
    return (norm(name, tokens, model.hidden),) if model.norms_behind else ()


def _gains(name: str, model: ModelSpec) -> tuple[Parameter, ...]:
    """Of the norm before a half of a layer, and of that behind it."""
    own = norm_gains(name, model.norm, model.hidden)
    behind = norm_gains(f"{name}_behind", model.norm, model.hidden)
    return (*own, *behind) if model.norms_behind else tuple(own)


def _predicting(model: ModelSpec) -> tuple[str, ...]:
    """The sorts of the transformer layers of a prediction module: one like the last of the model,
    or those of its pattern."""
    own = tuple(_sort(*blocks_of(entry)) for entry in model.mtp_pattern)
    return own or kinds(model)[-2:-1]


def _module_input(model: ModelSpec, shape: Shape) -> float:
    """Bytes of the hidden state and of the token indices."""
    return ELEMENT * shape.local_tokens * model.hidden + embedding.input_bytes(shape)


def _prediction(model: ModelSpec, shape: Shape) -> tuple[Layer, ...]:
    """The prediction modules. The first brings the table of embeddings along, unless a tied head
    does; the model's own head, on the same stage, has the projection."""
    if not model.mtp_layers:
        return ()
    if "mtp" in dict(shape.numbers):
        shape = replace(shape.of("mtp"), numbers=())
    module = _layer(model, shape, "mtp")
    own = weights(norm_gains("final_norm", model.norm, model.hidden))
    made = (module, replace(_layer(model, shape, "head"), weights=own, tied=Weights()))
    table = () if model.tied_embeddings else on_rank(embedding.parameters(model)[:1], shape)
    first = replace(module, tied=weights(table)), made[1]
    if model.mtp_shared:
        bare = {"weights": Weights(), "matrices": (), "query_key": 0}
        made = (replace(module, **bare), replace(made[1], weights=Weights()))
    return (*first, *made * (model.mtp_layers - 1))


def _mixer_parameters(model: ModelSpec, mixer: str) -> tuple[Parameter, ...]:
    gains = _gains("attention_norm", model)
    own = block(model)
    if not attends(mixer) and own is not None:
        return (*gains, *own.parameters(model))
    match attention(model, mixer):
        case LatentAttention() as latent:
            return (*gains, *attention_mla.parameters(latent, model))
        case GroupedAttention() as grouped:
            return (*gains, *attention_gqa.parameters(grouped, model))


def _mixer_items(model: ModelSpec, shape: Shape, mixer: str) -> tuple[Item, ...]:
    own = block(model)
    if not attends(mixer) and own is not None:
        return own.items(model, shape)
    match attention(model, mixer):
        case LatentAttention() as latent:
            return attention_mla.items(latent, model, shape)
        case GroupedAttention() as grouped:
            return attention_gqa.items(grouped, model, shape)


def _feed_parameters(model: ModelSpec, feed: str) -> tuple[Parameter, ...]:
    gains = _gains("ffn_norm", model)
    if feed == "moe" and model.moe is not None:
        return (*gains, *moe.parameters(model.moe, model))
    return (*gains, *ffn_dense.parameters(_ffn(model, feed), model))


def _ffn_items(model: ModelSpec, shape: Shape, feed: str) -> tuple[Item, ...]:
    if feed == "moe" and model.moe is not None:
        return moe.items(model.moe, model, shape)
    return ffn_dense.items(_ffn(model, feed), model, shape)
