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
`te.common.recipe`) one cast writes a tensor whole and turned, and nothing is turned later. `tensor`
is delayed scaling: one scale per tensor, known before a kernel ends, so that norms and activations
write FP8 themselves: as many bytes as in bf16, and no kernel. What attention writes, the gradients
of outputs, and what goes into experts (tokens in bf16, through the all-to-all) are cast by one
kernel. Where the scale is that of the tensor itself (`current`), a norm or an activation writes
bf16 and the cast is apart: three kernels for the maximum, the scale, and the numbers; of experts as
many for each one. With a scale per 32 values (`mx`) it is one kernel, and one per expert. Reading a
tensor once more for its maximum is left out: norms find it on their way, casts of experts do not,
so that `current` is a little too fast there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from twin.arch.kernels import ELEMENT, FP8, SINGLE, TILE, Matmul, linear
from twin.arch.ops import Op, Shape, Work

E5M6: Final = 12 / 8 + SINGLE / TILE
"""Bytes of an activation in E5M6, with its part of the tile's fp32 scale."""


def projection(
    name: str, shape: Shape, sizes: tuple[int, int, int], saved: float = 0.0, bias: bool = False
) -> tuple[Op, ...]:
    """A linear layer of `sizes` = (rows, inputs, outputs) in the run's numbers; its input is cast
    by whoever makes it (`cast`)."""
    matmul = Matmul(*sizes, precision=shape.precision)
    return (linear(name, matmul, saved, bias), *turns(name, matmul, shape))


def row_cut(
    name: str, shape: Shape, sizes: tuple[int, int, int], saved: float = 0.0, bias: bool = False
) -> tuple[Op, ...]:
    """The same of a matrix whose rows are cut over tensor ranks: with one scale per tensor a rank
    casts its slice of the output's gradient, and turns the whole of it once it is gathered."""
    own, *behind = projection(name, shape, sizes, saved, bias)
    if not (shape.per_tensor and shape.sequence_parallel and shape.tensor > 1):
        return (own, *behind)
    values = sizes[0] * sizes[2]
    moved = (ELEMENT + FP8) * values / shape.tensor + 2 * FP8 * values
    (turn,) = behind
    work = replace(turn.backward, bytes=moved, kernels=turn.backward.kernels + 1)
    return (own, replace(turn, backward=work))


def turns(name: str, matmul: Matmul, shape: Shape, arrives: bool = False) -> tuple[Op, ...]:
    """The casts behind a product, in forward order: backward its output's gradient, unless that
    `arrives` in FP8; for the weight's gradient whatever has to be turned. Nothing in bf16."""
    if matmul.precision == "bf16":
        return ()
    inputs, outputs = matmul.rows * matmul.inputs, matmul.rows * matmul.outputs
    cast = Work(0.0, (ELEMENT + 2 * FP8) * outputs, 1)
    if shape.per_tensor:
        kernels = _kernels(matmul.groups, shape)
        return (Op(f"{name}_turn", "cast", Work(), replace(cast, kernels=kernels)),)
    turned = inputs + outputs if arrives else inputs
    weight = Work(0.0, 2 * FP8 * turned, 2 if arrives else 1)
    return (Op(f"{name}_turn", "cast", Work(), Work() if arrives else cast, weight),)


def cast(made: Op, shape: Shape, keep: bool = False) -> tuple[Op, ...]:
    """An op whose output goes into linear layers, and the cast of it, which is kept instead; with
    `keep` bf16 is what is kept."""
    if shape.precision == "bf16" or (shape.per_tensor and keep):
        return (made,)
    if shape.scaling in ("current", "mx"):
        return _quantised(made, shape)
    if shape.per_tensor:
        return (replace(made, saved=made.saved * FP8 / ELEMENT),)
    values = made.output / ELEMENT
    forward = Work(0.0, (ELEMENT + FP8) * values, 1)
    kept = 0.0 if keep else made.saved * FP8 / ELEMENT
    own = made if keep else replace(made, saved=0.0)
    name = f"{made.name}_cast"
    return (own, Op(name, "cast", forward, Work(), saved=kept, output=FP8 * values))


def grouped(made: Op, experts: int, shape: Shape) -> tuple[Op, ...]:
    """As `cast`, of what goes into the product of several experts: Transformer Engine's grouped
    product casts its input itself, by one kernel or a few for each expert."""
    if not shape.per_tensor:
        return cast(made, shape)
    return _quantised(made, shape, experts)


def _quantised(made: Op, shape: Shape, experts: int = 1) -> tuple[Op, ...]:
    (own,) = arrived(made.name, made.output / ELEMENT, shape, experts)
    return (replace(made, saved=0.0), replace(own, saved=made.saved * FP8 / ELEMENT))


def _kernels(experts: int, shape: Shape) -> int:
    """Kernels of a cast: Transformer Engine has one for several tensors whose scales are known
    (`nvte_multi_cast_transpose`); otherwise a loop finds, for each, its maximum, the scale, and the
    numbers (`multi_tensor_quantize_impl`)."""
    return {"tensor": 1, "mx": experts, "current": 3 * experts}.get(shape.scaling, 1)


def arrived(name: str, values: float, shape: Shape, experts: int = 1) -> tuple[Op, ...]:
    """The cast of bf16 values that came to a linear layer from elsewhere, kept turned; none where
    they come in FP8, or are multiplied in bf16."""
    if not shape.per_tensor:
        return ()
    made = Work(0.0, (ELEMENT + 2 * FP8) * values, _kernels(experts, shape))
    return (Op(f"{name}_cast", "cast", made, Work(), saved=FP8 * values, output=2 * FP8 * values),)


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
