"""FP8 training as DeepSeek-V3 does it (arXiv:2412.19437, section 3.3): the three products of every
linear layer and of the experts multiply E4M3 numbers with a scale per 1 x 128 values of an
activation and per 128 x 128 of a weight. Attention, router, norms, embedding, head, and the
projection of a prediction module stay in bf16, and so do all outputs.

What that adds, as kernels of their own, since no norm or SwiGLU writes FP8 (section 3.5.2):

- A cast of every input of a linear layer: reads bf16, writes FP8. Norms and activations keep that
  instead of their bf16 output. The cast is named after them, so that a policy which runs them again
  names it, too. Where a router reads the norm's output, bf16 is what is kept, and no FP8 beside it.
- A cast of every output's gradient, to tiles along the row for the input's gradient, and along the
  column for the weight's gradient, since Hopper's FP8 tensor cores read both operands along the
  inner dimension only. A gradient that arrives in FP8 is turned only.
- For the weight's gradient the kept input is turned in the same way (section 3.3.3).

The input of the projection behind attention is kept in E5M6, 12 bits: attention's own backward pass
reads it, too (section 3.3.3). The inputs of SwiGLU are a matter of the memory policy (`fp8_store`),
as is running SwiGLU and norms again.

Weights exist in FP8 twice, whole and turned, made from the fp32 master once per step: 2 bytes, as
in bf16, so that the bytes of parameters do not change. With ZeRO the gather of new weights is
costed at 2 bytes, too; in FP8 it would be half.

The casts of four DeepSeek-V3 layers come to 6.2 ms at 3.35 TB/s x 0.8, forward and backward. In
DeepSeek's own trace (profile-data, train.json) casts take 4.8 ms, so that some seem to be fused
there; the difference is 1 % of the pair's 129 ms. An input that two layers share is turned for each
of them here.

With scales that turning leaves as they are (`Shape.per_tensor`; Transformer Engine's recipes,
`te.common.recipe`) one cast writes a tensor whole and turned, and nothing is turned later; where
the tensor cores read any layout (`Shape.any_layout`, Blackwell) it writes it once. `tensor` is
delayed scaling: one scale per tensor, known before a kernel ends, so that norms write FP8
themselves: as many bytes as in bf16, and no kernel. What activations write (Megatron-LM's are
kernels of its own) and attention, the gradients of outputs, and what goes into experts (tokens in
bf16, through the all-to-all) are cast by one kernel.

`current`: the scale is that of the tensor itself, so a norm or an activation writes bf16 and the
cast is apart: four kernels clear the maximum, find it (which reads the tensor once more), make the
scale, and write the numbers (`Float8CurrentScalingQuantizer::quantize_impl`). A norm finds the
maximum on its way, so that two are left; of experts there are as many for each one. `mx`: a scale
per 32 values, by one kernel that writes the tensor along both of its sides, one per expert; two
more put the scales in the order that the tensor cores read (`nvte_swizzle_scaling_factors`).
`row`: one scale per row of each operand (`twin.arch.fp8_rows`). FP4 is cast at the same places
(`twin.arch.fp4`).

Activations that wait in FP8 for their backward pass: which, in how many bytes, and the kernels
that pack and unpack them.

Source: Kimi K2 report (arXiv:2507.20534, section 2.4): inputs of MoE up-projections and of SwiGLU
are stored as FP8-E4M3 in tiles of 1 x 128 with an fp32 scale each. Nothing is computed in FP8 for
it: a kernel packs the bf16 numbers once they were used, another unpacks them before the backward
pass needs them.

- `moe_up_input` is what routed experts read, a copy per chosen expert. What shared experts read is
  the norm's output, which other ops need too. Under FP8 training it is in FP8 anyway.
- `swiglu_input` is gate and up of routed experts, of shared experts and of dense SwiGLU blocks.

Left out: rounding, which no time depends on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from twin.arch import fp4
from twin.arch.fp8_rows import input_cast, made_cast, product_casts
from twin.arch.kernels import ELEMENT, FP8, SINGLE, TILE, VALUE, Matmul, linear, streaming
from twin.arch.ops import Item, Layer, Op, Shape, Work
from twin.arch.recompute import wholly
from twin.spec.memory import MemorySpec

E5M6: Final = 12 / 8 + SINGLE / TILE
"""Bytes of an activation in E5M6, with its part of the tile's fp32 scale."""


def projection(
    name: str, shape: Shape, sizes: tuple[int, int, int], saved: float = 0.0, bias: bool = False
) -> tuple[Op, ...]:
    """A linear layer of `sizes` = (rows, inputs, outputs) in the run's numbers; its input is cast
    by whoever makes it (`cast`)."""
    matmul = Matmul(*sizes, precision=shape.precision, accumulate=shape.accumulate)
    return (linear(name, matmul, saved, bias), *turns(name, matmul, shape))


def row_cut(
    name: str, shape: Shape, sizes: tuple[int, int, int], saved: float = 0.0, bias: bool = False
) -> tuple[Op, ...]:
    """The same of a matrix whose rows are cut over tensor ranks: with one scale per tensor a rank
    casts its slice of the output's gradient, and turns the whole of it once it is gathered."""
    own, *behind = projection(name, shape, sizes, saved, bias)
    if not (shape.per_tensor and shape.sequence_parallel and shape.tensor > 1):
        return (own, *behind)
    if shape.by_rows:
        return (own, *behind)
    values = sizes[0] * sizes[2]
    (turn,) = behind
    if shape.short:
        part = fp4.casting(values / shape.tensor, shape, gradient=True)
        return (own, replace(turn, backward=part + fp4.scaled(shape)))
    slice_of = (_read(shape) + FP8) * values / shape.tensor
    if shape.layouts == 1:
        return (own, replace(turn, backward=replace(turn.backward, bytes=slice_of)))
    moved = slice_of + 2 * FP8 * values
    work = replace(turn.backward, bytes=moved, kernels=turn.backward.kernels + 1)
    return (own, replace(turn, backward=work))


def turns(name: str, matmul: Matmul, shape: Shape, arrives: bool = False) -> tuple[Op, ...]:
    """The casts behind a product, in forward order: backward its output's gradient, unless that
    `arrives` in FP8; for the weight's gradient whatever has to be turned. Nothing in bf16."""
    if matmul.precision == "bf16":
        return ()
    inputs, outputs = matmul.rows * matmul.inputs, matmul.rows * matmul.outputs
    if shape.by_rows:
        return (product_casts(name, matmul),)
    if shape.short:
        beside = fp4.scaled(shape)
        made = fp4.casting(outputs, shape, matmul.groups, gradient=True)
        return (Op(f"{name}_turn", "cast", beside, made + beside, beside),)
    if shape.per_tensor:
        return (Op(f"{name}_turn", "cast", Work(), _casting(outputs, shape, matmul.groups)),)
    cast = Work(0.0, (ELEMENT + 2 * FP8) * outputs, 1)
    turned = inputs + outputs if arrives else inputs
    weight = Work(0.0, 2 * FP8 * turned, 2 if arrives else 1)
    return (Op(f"{name}_turn", "cast", Work(), Work() if arrives else cast, weight),)


def cast(made: Op, shape: Shape, keep: bool = False) -> tuple[Op, ...]:
    """An op whose output goes into linear layers, and the cast of it, which is kept instead; with
    `keep` bf16 is what is kept."""
    if shape.precision == "bf16" or (shape.per_tensor and keep):
        return (made,)
    if shape.by_rows:
        return made_cast(made, shape)
    if shape.short or shape.scaling in ("current", "mx"):
        return _quantised(made, shape)
    if shape.per_tensor:
        known = replace(made, saved=made.saved * FP8 / ELEMENT)
        return (known,) if made.kind == "norm" else _quantised(made, shape)
    values = made.output / ELEMENT
    forward = Work(0.0, (ELEMENT + FP8) * values, 1)
    kept = 0.0 if keep else made.saved * FP8 / ELEMENT
    own = made if keep else replace(made, saved=0.0)
    name = f"{made.name}_cast"
    return (own, Op(name, "cast", forward, Work(), saved=kept, output=FP8 * values))


def grouped(made: Op, experts: int, shape: Shape) -> tuple[Op, ...]:
    """As `cast`, of what goes into the product of several experts: Transformer Engine's grouped
    product casts its input itself, by one kernel or a few for each expert."""
    if not shape.per_tensor or shape.by_rows:
        return cast(made, shape)
    return _quantised(made, shape, experts)


def _quantised(made: Op, shape: Shape, experts: int = 1) -> tuple[Op, ...]:
    values = made.output / ELEMENT
    (own,) = arrived(made.name, values, shape, experts)
    if shape.short:
        known = fp4.casting(values, shape, experts, gradient=False, known=True)
        own = replace(own, forward=known)
    elif made.kind == "norm" and shape.scaling == "current":
        known = Work(0.0, (ELEMENT + shape.layouts * FP8) * values, _MAXIMUM_KNOWN)
        own = replace(own, forward=known)
    kept = made.saved * VALUE[shape.precision] / ELEMENT
    return (replace(made, saved=0.0), replace(own, saved=kept))


_MAXIMUM_KNOWN: Final = 2
"""Kernels of a cast whose maximum is known: the scale, the numbers."""
_SWIZZLES: Final = 2
"""Kernels that put the scales of `mx` in order, one along each side of the tensors."""


def _kernels(experts: int, shape: Shape) -> int:
    """Kernels of a cast: Transformer Engine has one for several tensors whose scales are known
    (`nvte_multi_cast_transpose`); otherwise a loop casts each (`multi_tensor_quantize_impl`)."""
    each = {"mx": experts + _SWIZZLES, "current": (2 + _MAXIMUM_KNOWN) * experts}
    return each.get(shape.scaling, 1)


def _read(shape: Shape) -> int:
    """Bytes of a bf16 value that a cast reads, once more for a maximum that is not known."""
    return 2 * ELEMENT if shape.scaling == "current" else ELEMENT


def _casting(values: float, shape: Shape, experts: int = 1) -> Work:
    """A cast with scales that turning leaves as they are."""
    moved = (_read(shape) + shape.layouts * FP8) * values
    return Work(0.0, moved, _kernels(experts, shape))


def arrived(name: str, values: float, shape: Shape, experts: int = 1) -> tuple[Op, ...]:
    """The cast of bf16 values that came to a linear layer from elsewhere, kept turned; none where
    they come in FP8, or are multiplied in bf16."""
    if not shape.per_tensor:
        return ()
    if shape.by_rows:
        return (input_cast(name, values),)
    width = VALUE[shape.precision]
    made = _casting(values, shape, experts)
    if shape.short:
        made = fp4.casting(values, shape, experts, gradient=False)
    kept, output = width * values, shape.layouts * width * values
    return (Op(f"{name}_cast", "cast", made, Work(), saved=kept, output=output),)


def attention_out(shape: Shape, sizes: tuple[int, int, int], bias: bool = False) -> tuple[Op, ...]:
    """The projection behind the attention core. Its input, the core's output, stays when the core
    is recomputed: kept here, unless the core keeps it itself (`Shape.separate`)."""
    rows, inputs, _ = sizes
    values, kept = rows * inputs, not shape.separate
    if shape.precision == "bf16":
        return projection("attention_out", shape, sizes, float(ELEMENT * values * kept), bias)
    if shape.per_tensor:
        own = arrived("attention_out", values, shape)
        return (*own, *row_cut("attention_out", shape, sizes, ELEMENT * values * kept, bias))
    quantise = Work(0.0, (ELEMENT + FP8 + E5M6) * values, 1)
    made = Op("attention_out_cast", "cast", quantise, Work(), output=FP8 * values)
    return (made, *projection("attention_out", shape, sizes, E5M6 * values * kept, bias))


_SWIGLU_INPUT: Final[Mapping[str, str]] = MappingProxyType(
    {"experts_swiglu": "experts_up", "shared_swiglu": "shared_up", "ffn_swiglu": "ffn_up"}
)
"""The op that reads gate and up -> the op that keeps them."""


def packed_bytes(saved: float) -> float:
    """Bytes in FP8 of a tensor that is `saved` bytes in bf16."""
    return saved / ELEMENT * FP8


def stored(layer: Layer, memory: MemorySpec) -> dict[str, str]:
    """Names of a layer's ops that read what is kept in FP8 -> names of the items that keep it. None
    in a layer of which only the input is kept."""
    if not memory.fp8_store or wholly(layer, memory.recompute):
        return {}
    readers = {item.name: item for item in reversed(layer.items) if isinstance(item, Op)}
    found: dict[str, str] = {}
    up = readers.get("experts_up")
    if "moe_up_input" in memory.fp8_store and up is not None and not _multiplies_fp8(up):
        found["experts_up"] = next(
            item.name for item in layer.items if item.name.startswith("dispatch") and item.saved
        )
    if "swiglu_input" in memory.fp8_store:
        found |= {reader: maker for reader, maker in _SWIGLU_INPUT.items() if reader in readers}
    return found


def packing(layer: Layer, memory: MemorySpec) -> Layer:
    """The layer with the kernels that pack what it keeps in FP8, each behind the op that reads it:
    so packing follows the forward use, and unpacking precedes the backward's."""
    keeps = stored(layer, memory)
    if not keeps:
        return layer
    saved = {item.name: item.saved for item in layer.items if item.saved}
    items: list[Item] = []
    for item in layer.items:
        items.append(item)
        if isinstance(item, Op) and (kept := keeps.pop(item.name, None)):
            items.append(replace(_pack(kept, saved[kept]), aside=item.aside))
    return replace(layer, items=tuple(items))


def _multiplies_fp8(op: Op) -> bool:
    product = op.forward.product
    return product is not None and product.precision != "bf16"


def _pack(name: str, size: float) -> Op:
    """Reads the bf16 tensor and writes FP8 with scales; backward the other way."""
    moved = Work(0.0, size + packed_bytes(size), 1)
    return streaming(f"fp8_pack_{name}", moved, moved, 0.0, 0.0, "cast")
