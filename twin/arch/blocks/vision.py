"""A vision transformer before the language model, as in Qwen2.5-VL (arXiv:2502.13923, section 2.1):
patches through one matrix, layers that attend both ways within an image or a window of it, and a
merger that makes neighbouring patches one token.

It belongs to the stage of the embedding, whose rows it fills, and is in bf16. With
`parallel.layers` beginning with 0 it has that stage to itself. The rank that is looked at has the
fullest micro-batch: `images.fullest` times the patches of the mean. Over tensor ranks it is cut as
any transformer (a column-cut product, a row-cut one, a sum behind it), or whole on each of them,
which then encode all images or a part each (`shared` is what engines call data parallelism of the
encoder). Context ranks each encode all images of their sequences.

With adapters of the language model the encoder is frozen, and its merger too.

Attention within an image of n patches is 4 n FLOP per patch and value of width, both ways 2.5 times
as many. Left out: positions of patches (kernels over a few numbers), the order of windows, images
that a data loader makes smaller.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from twin.arch.kernels import ELEMENT, SINGLE, Matmul, gelu, linear, norm, residual, swiglu
from twin.arch.ops import Exchange, Item, Op, Shape, Work
from twin.arch.parameters import Parameter, matrix, norm_gains, vector
from twin.spec.model import ModelSpec
from twin.spec.vision import ImagesSpec, VisionSpec

START: Final = "vision_"
"""How names of operations begin."""


def parameters(model: ModelSpec) -> tuple[Parameter, ...]:
    """The weights of the encoder, none where there is none; matrices of its layers as tensor ranks
    may cut them (`placed`)."""
    vision = model.vision
    if vision is None:
        return ()
    layers, hidden, width = vision.layers, vision.hidden, vision.width
    up = 2 if vision.ffn == "swiglu" else 1
    merged = hidden * vision.merge
    table = (
        Parameter("vision.patches", "vision", "matrix", vision.values, hidden),
        *((vector("vision.patches.bias", "vision", hidden),) if vision.patch_bias else ()),
        *_positions(vision),
        matrix("vision.qkv", "vision", (hidden, hidden), "columns", 3 * layers),
        matrix("vision.out", "vision", (hidden, hidden), "rows", layers),
        matrix("vision.up", "vision", (hidden, width), "columns", up * layers),
        matrix("vision.down", "vision", (width, hidden), "rows", layers),
        matrix("vision.merge.up", "vision", (merged, merged), "replicated"),
        matrix("vision.merge.down", "vision", (merged, model.hidden), "replicated"),
        vector("vision.merge.bias", "vision", merged + model.hidden),
        *norm_gains("vision.merge.norm", vision.norm, hidden, "vision"),
    )
    biases = (3 + 1) * hidden + up * width + hidden if vision.bias else 0
    gains = 2 * sum(row.rows for row in norm_gains("n", vision.norm, hidden))
    return (*table, vector("vision.vectors", "vision", layers * (biases + gains)))


def placed(table: Iterable[Parameter], images: ImagesSpec | None) -> tuple[Parameter, ...]:
    """A table whose parameters of an encoder are cut as the images' layout says."""
    if images is not None and images.tensor == "cut":
        return tuple(table)
    return tuple(replace(row, cut="replicated") if row.part == "vision" else row for row in table)


def trained(row: Parameter, images: ImagesSpec | None) -> bool:
    """Whether a parameter is: of a frozen encoder only the merger's are."""
    still = images is not None and images.frozen and row.part == "vision"
    return not still or row.name.startswith("vision.merge")


def _positions(vision: VisionSpec) -> tuple[Parameter, ...]:
    if not vision.positions:
        return ()
    return (Parameter("vision.positions", "vision", "table", vision.positions, vision.hidden),)


def items(model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
    """From patches to rows of the embedding; nothing without images."""
    vision, images = model.vision, shape.images
    if vision is None or images is None:
        return ()
    patches = round(shape.sequences * images.patches * images.fullest)
    parts = shape.tensor if images.tensor == "shared" else 1
    own = -(-patches // (vision.merge * parts)) * vision.merge
    cut = shape.tensor if images.tensor == "cut" else 1
    layer = _layer(vision, own, images, cut, shape)
    encoder = (_read(vision, own, shape), *layer * vision.layers)
    merger = _merged(vision, model, own, shape, parts, frozen=images.frozen)
    if images.frozen or shape.lora:
        encoder = tuple(map(_forward_only, encoder))
    return (*encoder, *(map(_forward_only, merger) if shape.lora else merger))


def _read(vision: VisionSpec, patches: int, shape: Shape) -> Op:
    product = Matmul(patches, vision.values, vision.hidden, accumulate=shape.accumulate)
    size = float(ELEMENT * patches * (vision.values + vision.hidden))
    made = linear(f"{START}patches", product, saved=size, bias=vision.patch_bias)
    return replace(made, backward=Work())  # pixels have no gradient


def _layer(
    vision: VisionSpec, patches: int, images: ImagesSpec, cut: int, shape: Shape
) -> tuple[Item, ...]:
    hidden, width = vision.hidden, vision.width // cut
    up = 2 if vision.ffn == "swiglu" else 1
    row = float(ELEMENT * patches)
    activation = swiglu if vision.ffn == "swiglu" else gelu
    found: tuple[Item, ...] = (
        norm(f"{START}attention_norm", patches, hidden),
        _product("qkv", patches, (hidden, 3 * hidden // cut), shape, 3 * row * hidden / cut),
        _attention(vision, patches, images, cut),
        _product("out", patches, (hidden // cut, hidden), shape, row * hidden / cut),
        *_summed("out", row * hidden, cut),
        residual(f"{START}attention_residual", patches, hidden, dropout=False, keep=True),
        norm(f"{START}ffn_norm", patches, hidden),
        _product("up", patches, (hidden, up * width), shape, up * row * width),
        activation(f"{START}ffn", patches, width),
        _product("down", patches, (width, hidden), shape, 0.0),
        *_summed("down", row * hidden, cut),
        residual(f"{START}ffn_residual", patches, hidden, dropout=False, keep=True),
    )
    if not images.recompute:
        return found
    again = (_again(item) for item in found[:-1] if isinstance(item, Op))
    bare = (replace(item, saved=0.0) for item in found[:-1])
    return (*bare, *again, found[-1])


def _product(name: str, patches: int, sizes: tuple[int, int], shape: Shape, saved: float) -> Op:
    return linear(f"{START}{name}", Matmul(patches, *sizes, accumulate=shape.accumulate), saved)


def _summed(name: str, size: float, cut: int) -> tuple[Exchange, ...]:
    """The sum over tensor ranks behind a row-cut product, and before a column-cut one backward."""
    if cut == 1:
        return ()
    return (Exchange(f"{START}{name}_reduce", "tensor", size, "all_reduce", "all_reduce"),)


def _attention(vision: VisionSpec, patches: int, images: ImagesSpec, cut: int) -> Op:
    """One flash kernel, both ways, in the mean layer."""
    width = vision.hidden // cut
    near = min(vision.window or images.image, images.image)
    full = 1.0 if vision.window is None else 1 / vision.full_every if vision.full_every else 0.0
    keys = full * images.image + (1 - full) * near
    size = float(ELEMENT * patches * width)
    statistics = float(SINGLE * patches * vision.heads / cut)
    head = vision.hidden / vision.heads
    flop = 4.0 * patches * keys * width
    return Op(
        f"{START}attention",
        "attention",
        Work(flop, 4 * size + statistics, 1, width=head),
        Work(2.5 * flop, 8 * size + statistics, 3, width=head),
        saved=statistics,
        output=size,
        queries=images.image,
    )


def _merged(
    vision: VisionSpec, model: ModelSpec, patches: int, shape: Shape, parts: int, *, frozen: bool
) -> tuple[Item, ...]:
    """Patches side by side through two matrices; ranks that encoded parts gather all tokens."""
    tokens, wide = patches // vision.merge, vision.hidden * vision.merge
    normed = norm(f"{START}merge_norm", patches, vision.hidden)
    up = _product("merge_up", tokens, (wide, wide), shape, float(ELEMENT * tokens * wide))
    if frozen:
        normed, up = _forward_only(normed, saved=normed.saved), replace(up, backward=Work())
    made = ELEMENT * tokens * model.hidden * parts
    gather = Exchange(f"{START}gather", "tensor", float(made), "all_gather", "reduce_scatter")
    return (
        normed,
        up,
        gelu(f"{START}merge_gelu", tokens, wide),
        _product("merge_down", tokens, (wide, model.hidden), shape, 0.0),
        *((gather,) if parts > 1 else ()),
    )


def _forward_only(item: Item, saved: float = 0.0) -> Item:
    """Without a backward pass."""
    if isinstance(item, Exchange):
        return replace(item, backward=None, saved=0.0)
    return replace(item, backward=Work(), weight=Work(), saved=saved, late=0.0)


def _again(op: Op) -> Op:
    """A forward pass that the backward pass makes once more; sums over ranks are not."""
    name = f"{op.name}_again"
    return Op(name, op.kind, Work(), op.forward, output=op.output, queries=op.queries)
