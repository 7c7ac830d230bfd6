"""A multi-token-prediction module before its transformer layer (DeepSeek-V3, arXiv:2412.19437,
section 2.2): the embedding of the token that is further ahead, looked up in the model's own table,
and the hidden state of the module before, each normed, side by side through one projection.

Behind the transformer layer follow a norm of its own and the model's own head (`head.items`), with
a loss of its own. Modules predict one token after another, so that a second module reads what the
first one made. Every position is computed, though the last ones of a sequence have no token ahead.

The projection is whole on every tensor rank and works on the rank's own tokens. In FP8 it stays in
bf16, as its released weights are (DeepSeek-V3, model.safetensors: `eh_proj`).
"""

from __future__ import annotations

from dataclasses import replace

from twin.arch.kernels import ELEMENT, Matmul, linear, norm, streaming
from twin.arch.ops import Item, Shape, Work
from twin.arch.parameters import Parameter, matrix, norm_gains
from twin.spec.model import ModelSpec


def parameters(model: ModelSpec) -> tuple[Parameter, ...]:
    """Both norms and the projection."""
    return (
        *norm_gains("mtp_embedding_norm", model.norm, model.hidden),
        *norm_gains("mtp_hidden_norm", model.norm, model.hidden),
        matrix("mtp_projection", "mtp_projection", (2 * model.hidden, model.hidden), "replicated"),
    )


def items(model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
    """From the hidden state and the rows of the table to the transformer layer's input. The norms'
    outputs live on in the joined rows only."""
    tokens, hidden = shape.local_tokens, model.hidden
    rows = ELEMENT * tokens * hidden
    ahead, before = (
        replace(norm(f"mtp_{name}_norm", tokens, hidden), saved=0.0)
        for name in ("embedding", "hidden")
    )
    product = Matmul(tokens, 2 * hidden, hidden, accumulate=shape.accumulate)
    joined = Work(0.0, 4 * rows, 1)
    return (
        ahead,
        before,
        streaming("mtp_join", joined, joined, 2 * rows, 2 * rows),
        linear("mtp_projection", product, saved=rows),
    )
