"""FP4 training: the three products of linear layers and of experts multiply E2M1 numbers.

`nvfp4` is Transformer Engine's recipe (`NVFP4BlockScaling`; NVIDIA 2025, "Pretraining large
language models with NVFP4", arXiv:2509.25149): a scale in E4M3 per 16 values, one in fp32 per
tensor.

- Tensor cores read both operands along the inner sum only (TN), so that each cast writes a tensor
  whole and turned, both from bf16: rounding twice would be worse.
- What goes into weights' gradients is rotated first, 16 values at a time, by a random Hadamard
  matrix, on the tensor cores and inside the cast. The scale of a tensor needs its maximum, and that
  of the rotated one, so that a kernel of its own reads bf16 once before; another clears the two.
  Without the rotation norms and activations find the maximum on their way.
- Gradients are rounded at random: one kernel more makes the state of the random numbers.
- Weights have a scale per 16 x 16, made once per step; their casts are left out, as those of FP8.
- Each product needs the product of both tensors' scales: a kernel of one thread.
- Scales are written in the order that tensor cores read; experts of a rank are cast together.

`mxfp4` has a scale (a power of two) per 32 values and none per tensor (OCP Microscaling Formats
1.0, section 5.3; Tseng et al. 2025, "Training LLMs with MXFP4", arXiv:2502.20586): one kernel for
each tensor, in which the rotation is, reads bf16 once; two more put the scales in order, as for
MXFP8.

Attention, router, norms, embedding, head and outputs stay in bf16, and whole layers or parts of
them where a recipe says so (`Shape.of`, `Shape.bf16_ends`).

Bytes of weights: bf16 weights stay beside both quantised copies, unless ranks gather quantised ones
(`train.fp4_param_gather`), and then there are these alone.

Tensor ranks gather what is cast: forward whole, for weights' gradients turned, and the gradient of
an output as both. Left out: that they agree on the maximum before.
"""

from __future__ import annotations

from typing import Final

from twin.arch.kernels import ELEMENT, VALUE
from twin.arch.ops import Layer, Op, Product, Shape, Work

SIDES: Final = 2
"""How often a cast writes a tensor: whole and turned."""
_CLEARED_AND_FOUND: Final = 2
"""Kernels before a cast that clear the maxima and find them."""
_SWIZZLES: Final = 2
"""Kernels that put the scales of `mxfp4` in order, one along each side of the tensors."""


def casting(
    values: float, shape: Shape, experts: int = 1, *, gradient: bool, known: bool = False
) -> Work:
    """A cast of bf16 values, those of all `experts` of a rank, of a `gradient` or an input.
    `known`: whoever made them found the maximum, if the cast asks for none of rotated ones."""
    rounded = gradient and "stochastic_rounding" not in shape.without
    written = SIDES * VALUE[shape.precision]
    if shape.precision == "mxfp4":
        return Work(0.0, (ELEMENT + written) * values, experts + _SWIZZLES + rounded)
    rotated = "hadamard" not in shape.without
    each = 1 if rotated else experts
    if known and not rotated:
        return Work(0.0, (ELEMENT + written) * values, each + rounded)
    kernels = (_CLEARED_AND_FOUND + 1) * each + rounded
    return Work(0.0, (2 * ELEMENT + written) * values, kernels)


def scaled(shape: Shape) -> Work:
    """What each product has beside: the product of two tensors' scales."""
    return Work(0.0, 0.0, 1 if shape.precision == "nvfp4" else 0)


def quantised(layers: tuple[Layer, ...]) -> float:
    """Bytes on one rank of the weights that these layers multiply in FP4, whole and turned."""
    return sum(SIDES * VALUE[one.precision] * _weights(one) for one in _products(layers))


def multiplied(layers: tuple[Layer, ...]) -> int:
    """Weights on one rank that these layers multiply in FP4."""
    return sum(map(_weights, _products(layers)))


def _weights(gradient: Product) -> int:
    return gradient.groups * gradient.rows * gradient.cols


def _products(layers: tuple[Layer, ...]) -> list[Product]:
    """The products in FP4 that give gradients of weights."""
    made = (item.weight.product for one in layers for item in one.items if isinstance(item, Op))
    return [one for one in made if one is not None and one.precision in ("nvfp4", "mxfp4")]
