"""Kernels that several blocks share: FLOP, HBM bytes, launches and saved bytes of each, as an `Op`.

A GEMM of m x k by k x n does 2mnk FLOP and moves each matrix once. A kernel without a GEMM moves
its inputs and outputs once and its FLOP are not counted: none runs on the tensor cores, and memory
decides its time. Activations and weights are 2 bytes (bf16 or fp16), unless `twin.arch.fp8` or
`twin.arch.fp4` says otherwise. Statistics of norms (8 bytes per token) are left out, as in
Korthikanti et al. 2022 (arXiv:2205.05198), section 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

from twin.arch.ops import Op, Precision, Product, Streaming, Work

ELEMENT: Final = 2
"""Bytes of a weight or an activation in bf16 or fp16."""
SINGLE: Final = 4
"""Bytes of an fp32 number."""
COUNT: Final = 8
"""Bytes of a number of rows (int64)."""
ACCUMULATE: Final = 2 * SINGLE
"""Bytes moved per weight when its gradient is added to an fp32 buffer: read and written
(Megatron-LM's gradient accumulation fusion; Kimi K2 report, section 2.4: fp32 gradients). Half of
it where the buffer is bf16 (`--accumulate-allreduce-grads-in-fp32` off)."""
MASK: Final = 1
"""Bytes of one element of a dropout mask (Korthikanti et al. 2022, section 4.1)."""
TILE: Final = 128
"""Values that share a scale: 1 x 128 of an activation, 128 x 128 of a weight (DeepSeek-V3,
arXiv:2412.19437, section 3.3.2)."""
FP8: Final = 1 + SINGLE / TILE
"""Bytes of an activation in FP8, with its part of the tile's fp32 scale: 1.03125."""
FP8_WEIGHT: Final = 1 + SINGLE / TILE**2
"""Bytes of a weight in FP8, with its part of the block's fp32 scale."""
VALUE: Final[Mapping[Precision, float]] = MappingProxyType(
    {"bf16": ELEMENT, "fp8": FP8, "nvfp4": 1 / 2 + 1 / 16, "mxfp4": 1 / 2 + 1 / 32}
)
"""Bytes of a value that goes into a product, with its part of a scale: in NVFP4 one byte (E4M3) per
16 values, in MXFP4 one (a power of two) per 32 (OCP Microscaling Formats 1.0, section 5)."""
WEIGHT: Final[Mapping[Precision, float]] = MappingProxyType({**VALUE, "fp8": FP8_WEIGHT})
"""Bytes of a weight. In NVFP4 16 x 16 weights have one scale, which stands in each row all the same
(Transformer Engine)."""


@dataclass(frozen=True, slots=True)
class Matmul:
    """A linear layer's matrix: `rows` of `inputs` to `outputs`, for each of `groups` experts its
    own weights, `rows` those of all together."""

    rows: int
    inputs: int
    outputs: int
    groups: int = 1
    precision: Precision = "bf16"
    accumulate: int = ACCUMULATE
    """Bytes moved per weight when its gradient is added to the buffer."""

    @property
    def value(self) -> float:
        """Bytes of a value of an activation or its gradient that goes into a product."""
        return VALUE[self.precision]

    def forward(self) -> Work:
        """The output, in 2-byte numbers."""
        product = Product(self.rows, self.outputs, self.inputs, self.groups, self.precision)
        return self._work(product, self.weight_bytes() + self._rows(self.inputs, self.outputs))

    def input_gradient(self) -> Work:
        """The gradient of the input, in 2-byte numbers, from that of the output."""
        product = Product(self.rows, self.inputs, self.outputs, self.groups, self.precision)
        return self._work(product, self.weight_bytes() + self._rows(self.outputs, self.inputs))

    def weight_gradient(self) -> Work:
        """The gradient of the weights, added to its buffer."""
        product = Product(self.inputs, self.outputs, self.rows, self.groups, self.precision, True)
        read = self.value * self.rows * (self.inputs + self.outputs)
        return self._work(
            product, read + self.accumulate * self.groups * self.inputs * self.outputs
        )

    def weight_bytes(self) -> float:
        """Bytes of the weights, as a product reads them."""
        return WEIGHT[self.precision] * self.groups * self.inputs * self.outputs

    def _rows(self, read: int, written: int) -> float:
        return self.rows * (self.value * read + ELEMENT * written)

    def _work(self, product: Product, moved: float) -> Work:
        return Work(2.0 * self.rows * self.inputs * self.outputs, moved, 1, product)


def piece(work: Work, pieces: int) -> Work:
    """The work on one of so many equal pieces of the rows: each piece of a product with weights
    reads all of them. Not for a weight's gradient, whose rows are summed."""
    product, weights = work.product, 0.0
    if product is not None:
        rows = product.rows // pieces
        whole = Matmul(rows, product.k, product.cols, product.groups, product.precision)
        product, weights = replace(product, rows=rows), whole.weight_bytes()
    moved = weights + (work.bytes - weights) / pieces
    return replace(work, flop=work.flop / pieces, bytes=moved, product=product)


def of_mean(work: Work, load: float) -> Work:
    """The work of the mean rank, where the fullest has `load` times its rows."""
    product, fixed = work.product, 0.0
    if load == 1.0:
        return work
    if product is not None and product.weight:
        fixed = ACCUMULATE * product.groups * product.rows * product.cols
        product = replace(product, k=max(1, round(product.k / load)))
    elif product is not None:
        whole = Matmul(product.rows, product.k, product.cols, product.groups, product.precision)
        fixed = whole.weight_bytes()
        product = replace(product, rows=max(1, round(product.rows / load)))
    moved = fixed + (work.bytes - fixed) / load
    return replace(work, flop=work.flop / load, bytes=moved, product=product)


def linear(name: str, matmul: Matmul, saved: float = 0.0, bias: bool = False) -> Op:
    """A linear layer: one GEMM forward, one for the input's and one for the weight's gradient.

    The bias is added by the GEMM's epilogue; its gradient reads the output's gradient once more.
    """
    weight = matmul.weight_gradient()
    if bias:
        weight += Work(0.0, ELEMENT * matmul.rows * matmul.outputs, 1)
    return Op(
        name,
        "gemm",
        matmul.forward(),
        matmul.input_gradient(),
        weight,
        saved,
        output=ELEMENT * matmul.rows * matmul.outputs,
        late=matmul.value * matmul.rows * (matmul.inputs + matmul.outputs),
    )


def streaming(
    name: str,
    forward: Work,
    backward: Work,
    saved: float,
    output: float,
    kind: Streaming = "bandwidth",
) -> Op:
    """A kernel whose time is that of its memory traffic."""
    return Op(name, kind, forward, backward, Work(), saved, output)


def layer_input(size: float) -> Op:
    """The layer's input, `size` bytes kept for its first norm: no work, and never recomputed."""
    return Op("layer_input", "bandwidth", Work(), Work(), saved=size, output=size)


def norm(name: str, tokens: int, width: int) -> Op:
    """RMSNorm or LayerNorm: reads x, writes y; backward reads x and dy, writes dx, and a second
    small kernel reduces the gradient of the gain. Keeps y; x is kept by whoever makes it."""
    size = ELEMENT * tokens * width
    return streaming(name, Work(0.0, 2 * size, 1), Work(0.0, 3 * size, 2), size, size, "norm")


def gelu(name: str, tokens: int, width: int) -> Op:
    """GeLU with the bias of the GEMM before it, fused. Keeps its output, the next GEMM's input."""
    size = ELEMENT * tokens * width
    return streaming(name, Work(0.0, 2 * size, 1), Work(0.0, 3 * size, 1), size, size, "activation")


def swiglu(name: str, tokens: int, width: int) -> Op:
    """SwiGLU over gate and up, 2 x width wide, fused. Keeps its output, the next GEMM's input.
    Backward reads gate, up and dy, writes the gradients of gate and up."""
    size = ELEMENT * tokens * width
    return streaming(name, Work(0.0, 3 * size, 1), Work(0.0, 5 * size, 1), size, size, "activation")


def activation(
    name: str, kind: Literal["swiglu", "gelu", "squared_relu"], tokens: int, width: int
) -> Op:
    """The activation of a dense feed-forward block, named `name` and its kind; a squared ReLU moves
    what a GeLU does."""
    make = swiglu if kind == "swiglu" else gelu
    return make(f"{name}_{kind}", tokens, width)


def residual(name: str, tokens: int, width: int, dropout: bool, keep: bool) -> Op:
    """Add a branch to the residual stream, after dropout if the model has it; backward also sums
    the gradients that meet where the branch began. Keeps the mask, and the sum when `keep`: the
    next norm's input. The sum that ends a layer is the next layer's input, which keeps it."""
    size, mask = ELEMENT * tokens * width, MASK * tokens * width
    forward, backward = Work(0.0, 3 * size, 1), Work(0.0, 3 * size, 1)
    if dropout:
        forward += Work(0.0, mask, 0)
        backward += Work(0.0, 2 * size + mask, 1)
    return streaming(name, forward, backward, keep * size + dropout * mask, size)
