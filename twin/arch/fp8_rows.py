"""FP8 with one scale per row of each operand: torchao's `rowwise` recipe under torch.compile.

A scale runs along the inner sum of a product, so each operand is cast by rows for one product and
by columns for the other (torchao, `float8/float8_linear.py`):

- Forward, the input by rows and the weight by rows.
- For the input's gradient, the output's gradient by rows and the weight by columns.
- For the weight's gradient, the output's gradient and the input by columns.

A cast by rows reads bf16 once. The compiler fuses it with the norm or the activation before it
(pytorch/pytorch pull request 130422), unless tensor ranks gather in between. A cast by columns
finds the maxima first (two kernels: partial maxima, then all), and reads the tensor twice more to
turn it (pytorch/pytorch issue 133242: the compiler loads the input twice).

The forward product is CUTLASS's, which scales as it ends. Those of the backward pass, which add in
full precision, are cuBLAS's without scales: one more kernel each reads and scales what they give
(pytorch/ao pull request 1325, issue 2184).

Kept is bf16, since the casts by columns need it. Weights are cast in every pass, since what FSDP
gathers is bf16. Tensor ranks gather bf16 too, and each casts the whole: only one scale per tensor
is cast before (torchtitan, `enable_float8_tensorwise_tp`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from twin.arch.kernels import ELEMENT, Matmul
from twin.arch.ops import Op, Shape, Work

NUMBER: Final = 1
"""Bytes of a value in FP8; a scale per row weighs nothing."""


def by_rows(values: float) -> Work:
    """A cast along the rows of a tensor of so many values."""
    return Work(0.0, (ELEMENT + NUMBER) * values, 1)


def by_columns(values: float) -> Work:
    """A cast along the columns, which turns the tensor: maxima, then values."""
    return Work(0.0, (3 * ELEMENT + NUMBER) * values, 3)


def rescaled(values: float) -> Work:
    """Scales of rows and columns on what a product gave."""
    return Work(0.0, 2 * ELEMENT * values, 1)


def input_cast(name: str, values: float) -> Op:
    """Of bf16 values that go into products: by rows, and backward by columns."""
    return Op(f"{name}_cast", "cast", by_rows(values), by_columns(values), output=NUMBER * values)


def made_cast(made: Op, shape: Shape) -> tuple[Op, ...]:
    """A norm or an activation, and the cast of what it writes; it keeps bf16. What a norm writes
    under sequence parallelism is gathered first, and cast whole."""
    values = made.output / ELEMENT
    if made.kind == "norm" and shape.sequence_parallel and shape.tensor > 1:
        return (made, input_cast(made.name, shape.tensor * values))
    fused = Work(0.0, NUMBER * values, 0)
    return (made, replace(input_cast(made.name, values), forward=fused))


def product_casts(name: str, matmul: Matmul) -> Op:
    """Around a product: casts of its weight and of its output's gradient, and the scales on both
    gradients."""
    weights = matmul.groups * matmul.inputs * matmul.outputs
    inputs, outputs = matmul.rows * matmul.inputs, matmul.rows * matmul.outputs
    return Op(
        f"{name}_turn",
        "cast",
        by_rows(weights),
        by_rows(outputs) + by_columns(weights) + rescaled(inputs),
        by_columns(outputs) + rescaled(weights),
    )
