"""The dense feed-forward block: SwiGLU (gate and up in one GEMM, then down), GeLU or squared ReLU
(up, down; So et al. 2021, "Primer", arXiv:2109.08668).

Tensor parallel: up is cut by column, down by row (Shoeybi et al. 2019, arXiv:1909.08053,
section 3).
"""

from __future__ import annotations

from twin.arch.fp8 import cast, projection, row_cut
from twin.arch.kernels import ELEMENT, activation
from twin.arch.ops import Item, Shape
from twin.arch.parameters import Parameter, enter, leave, matrix, regather, vector
from twin.spec.model import DenseFfn, ModelSpec


def _matrices_up(ffn: DenseFfn) -> int:
    return 2 if ffn.kind == "swiglu" else 1


def parameters(ffn: DenseFfn, model: ModelSpec) -> tuple[Parameter, ...]:
    """The weights of one feed-forward block; gate and up are separate matrices."""
    count = _matrices_up(ffn)
    weights = (
        matrix("up", "dense_ffn", (model.hidden, ffn.width), "columns", count),
        matrix("down", "dense_ffn", (ffn.width, model.hidden), "rows"),
    )
    if not ffn.bias:
        return weights
    return (
        *weights,
        vector("up.bias", "dense_ffn", count * ffn.width, "rows"),
        vector("down.bias", "dense_ffn", model.hidden),
    )


def items(ffn: DenseFfn, model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
    """From the normed hidden state to the block's output, before the residual."""
    tokens, width = shape.tokens, ffn.width // shape.tensor
    count, hidden = _matrices_up(ffn), ELEMENT * tokens * model.hidden
    down = (tokens, width, model.hidden)
    names = ("ffn_gate", "ffn_up") if shape.separate and count > 1 else ("ffn_up",)
    made = count // len(names) * width
    return (
        *enter("ffn_gather", hidden, shape, shape.gathered),
        *(
            op
            for name in names
            for op in projection(
                name, shape, (tokens, model.hidden, made), ELEMENT * tokens * made, ffn.bias
            )
        ),
        *regather("ffn_regather", hidden, shape, shape.gathered),
        *cast(activation("ffn", ffn.kind, tokens, width), shape),
        *row_cut("ffn_down", shape, down, bias=ffn.bias),
        *leave("ffn_reduce", hidden, shape),
    )
