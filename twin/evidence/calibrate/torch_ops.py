"""What PyTorch's operations are in the twin's words: an operation with the shapes of its inputs, as
the profiler records them (`record_shapes=True`), to a kernel with FLOP, bytes and a class.

Only operations whose work follows from their inputs are here; each other one is named with its
share of the time. Products count in bf16 only (a profile has no other 16-bit numbers; fp16 has the
same rates). Attention counts causal scores by half, two products forward and five backward (Dao et
al. 2022). Elementwise kernels read their inputs once and write one result as large as the largest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any, Final

from twin.arch.kernels import ELEMENT, SINGLE
from twin.arch.ops import OpClass, Product, Work

BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "c10::BFloat16": 2, "c10::Half": 2, "float": 4, "double": 8, "long int": 8, "int": 4,
        "bool": 1, "unsigned char": 1, "signed char": 1, "c10::Float8_e4m3fn": 1,
    }
)  # fmt: skip
"""Bytes of a number of each type that the profiler names."""
HALF: Final = frozenset({"c10::BFloat16", "c10::Half"})


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of one call: their sizes, types, and values where they are no tensors; the sizes
    of the gradient, inside a backward pass."""

    dims: Sequence[Sequence[int]]
    types: Sequence[str]
    values: Sequence[str]
    gradient: Sequence[int] = ()

    @property
    def tensors(self) -> list[tuple[Sequence[int], int]]:
        """Sizes and bytes per number of the inputs that are tensors."""
        pairs = zip(self.dims, self.types, strict=False)
        return [(dims, BYTES[kind]) for dims, kind in pairs if dims and kind in BYTES]


@dataclass(frozen=True, slots=True)
class Meaning:
    """A kernel of the twin: class, shape in words, work, and direction."""

    op_class: OpClass
    shape: str
    work: Work
    backward: bool = False


class UnknownError(ValueError):
    """A call whose work does not follow from what was recorded; the text says why."""


def meaning(name: str, inputs: Inputs) -> Meaning:
    """What a call did. Raises `UnknownError` where it is nothing that the twin prices, or where its
    shapes were not recorded."""
    bare = name.removeprefix("aten::")
    reader = _READERS.get(bare)
    if reader is None:
        raise UnknownError("no class of the twin")
    if not any(inputs.dims):
        raise UnknownError("no shapes: profile with record_shapes=True")
    try:
        return reader(bare, inputs)
    except (IndexError, ValueError) as error:
        if isinstance(error, UnknownError):
            raise
        raise UnknownError("shapes that are none of this operation") from None


def mapped(name: str) -> bool:
    """Whether an operation has a class, so that what it calls is part of it."""
    return name.removeprefix("aten::") in _READERS


def _half(inputs: Inputs, *which: int) -> None:
    kinds = {inputs.types[i] for i in which}
    if not kinds <= HALF:
        raise UnknownError(f"products of {', '.join(sorted(kinds))}: a profile has 16-bit ones")


def _product(name: str, inputs: Inputs) -> Meaning:
    first = 1 if name == "addmm" else 0
    _half(inputs, first, first + 1)
    (rows, inner), (other, cols) = inputs.dims[first], inputs.dims[first + 1]
    if inner != other or not rows * inner * cols:
        raise UnknownError("shapes that are none of this operation")
    gradient = list(inputs.gradient)
    # A backward pass holds two products: that for the weight sums over the gradient's rows.
    weight = len(gradient) == 2 and inner == gradient[0] and gradient[1] in (rows, cols)
    weight = weight and not (inner == gradient[1] and rows == gradient[0])
    product = Product(rows, cols, inner, 1, "bf16", weight)
    moved = ELEMENT * (rows * inner + inner * cols + rows * cols)
    return Meaning(
        "gemm",
        f"{rows:,} x {cols:,} x {inner:,}",
        Work(2.0 * rows * cols * inner, moved, 1, product),
        weight,
    )


def _grouped(name: str, inputs: Inputs) -> Meaning:
    """Rows in groups times a matrix each, or (two matrices) the gradient of those."""
    del name
    _half(inputs, 0, 1)
    left, right = inputs.dims[0], inputs.dims[1]
    if len(left) == 2 and len(right) == 3:
        (rows, inner), (groups, _, cols) = left, right
        product = Product(rows, cols, inner, groups)
        moved = ELEMENT * (rows * inner + groups * inner * cols + rows * cols)
    elif len(left) == 2 and len(right) == 2:
        (rows, inner), (_, cols), (groups,) = left, right, inputs.dims[2]
        product = Product(rows, cols, inner, groups, "bf16", weight=True)
        moved = ELEMENT * (inner * (rows + cols) + groups * rows * cols)
    else:
        raise UnknownError("a grouped product of another form")
    each = f"{groups} x {rows:,} x {cols:,} x {inner:,}"
    flop = 2.0 * rows * cols * inner
    return Meaning("grouped_gemm", each, Work(flop, moved, 1, product), product.weight)


_CAUSAL: Final[Mapping[str, int]] = MappingProxyType(
    {
        "_scaled_dot_product_flash_attention_for_cpu": 4,
        "_scaled_dot_product_flash_attention_for_cpu_backward": 7,
        "_scaled_dot_product_flash_attention": 4,
        "_scaled_dot_product_flash_attention_backward": 11,
        "_scaled_dot_product_efficient_attention": 6,
        "_scaled_dot_product_efficient_attention_backward": 11,
        "_scaled_dot_product_cudnn_attention": 6,
        "_scaled_dot_product_cudnn_attention_backward": 14,
    }
)
"""Fused attention, and which argument says whether it is causal (native_functions.yaml)."""


def _attention(name: str, inputs: Inputs) -> Meaning:
    backward = name.endswith("_backward")
    first = 1 if backward else 0
    query, key, value = inputs.dims[first : first + 3]
    batch, heads, tokens, width = query
    key_heads, sources, value_width = key[1], key[2], value[3]
    place = _CAUSAL[name]
    said = inputs.values[place] if place < len(inputs.values) else ""
    causal = said != "False" and tokens > 1
    scores = batch * heads * tokens * sources * (0.5 if causal else 1.0)
    products = 3 * width + 2 * value_width if backward else width + value_width
    kept = (heads + key_heads) * (width + value_width) * batch * tokens
    moved = ELEMENT * kept * (2 if backward else 1) + SINGLE * batch * tokens * heads
    words = f"{heads} heads of {width} and {value_width}, {batch} x {tokens:,} tokens"
    work = Work(
        2.0 * scores * products, moved, 3 if backward else 1, width=(width + value_width) / 2
    )
    return Meaning("attention", words + ("" if causal else ", not causal"), work, backward)


def _elementwise(name: str, inputs: Inputs) -> Meaning:
    tensors = inputs.tensors
    if not tensors:
        raise UnknownError("no shapes: profile with record_shapes=True")
    read = sum(prod(dims) * size for dims, size in tensors)
    written = max(prod(dims) * size for dims, size in tensors)
    if name in ("copy_", "fill_", "zero_"):
        # The first input is the result: it is written, and not read.
        (dims, size), *others = tensors
        written = prod(dims) * size
        read = sum(prod(other) * its for other, its in others)
    words = ", ".join(" x ".join(f"{n:,}" for n in dims) for dims, _ in tensors)
    return Meaning("bandwidth", f"{name} of {words}", Work(0.0, float(read + written), 1))


_ELEMENTWISE: Final = (
    "add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "neg", "exp", "rsqrt", "sqrt",
    "pow", "gelu", "gelu_backward", "silu", "silu_backward", "sigmoid", "sigmoid_", "tanh", "relu",
    "threshold_backward", "where", "masked_fill_", "copy_", "fill_", "zero_", "_softmax",
    "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data", "native_layer_norm",
    "native_layer_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward", "native_dropout",
    "lerp_", "addcmul_", "addcdiv_", "cat",
)  # fmt: skip

Reader = Callable[[str, Inputs], Meaning]
_READERS: Final[Mapping[str, Reader]] = MappingProxyType(
    {
        "mm": _product,
        "addmm": _product,
        "_grouped_mm": _grouped,
        **dict.fromkeys(_CAUSAL, _attention),
        **dict.fromkeys(_ELEMENTWISE, _elementwise),
    }
)


def inputs(arguments: Mapping[str, Any], gradient: Sequence[int] = ()) -> Inputs:
    """The inputs of a call from what the profiler wrote about it."""
    return Inputs(
        arguments.get("Input Dims") or (),
        arguments.get("Input type") or (),
        arguments.get("Concrete Inputs") or (),
        gradient,
    )
