"""The output: final norm, projection to the vocabulary, cross-entropy on fp32 logits.

The vocabulary is cut over tensor ranks. The loss casts bf16 logits to fp32 and works on them in
place: maximum, exponential and sum, softmax (Megatron-LM, `fused_cross_entropy.py`); between these
steps tensor ranks agree on the maximum and the sums. The softmax is kept, 4 x tokens x vocabulary
bytes (Korthikanti et al. 2022, arXiv:2205.05198, section 4.3); backward turns it into the gradient
in place and casts that to bf16.
"""

from __future__ import annotations

from twin.arch.kernels import ELEMENT, SINGLE, Matmul, layer_input, linear, norm, streaming
from twin.arch.ops import Exchange, Item, Shape, Work
from twin.arch.parameters import Parameter, norm_gains
from twin.arch.sharding import enter, regather
from twin.spec.model import ModelSpec


def matrix(model: ModelSpec) -> Parameter:
    """The projection to the vocabulary: a matrix of its own, or the embedding table again."""
    return Parameter("head", "head", "table", model.vocab, model.hidden, cut="rows")


def parameters(model: ModelSpec) -> tuple[Parameter, ...]:
    """The final norm, and the projection unless it is the embedding table."""
    gains = norm_gains("final_norm", model.norm, model.hidden)
    return gains if model.tied_embeddings else (*gains, matrix(model))


def tied_parameters(model: ModelSpec) -> tuple[Parameter, ...]:
    """The projection, if it is counted with the embedding."""
    return (matrix(model),) if model.tied_embeddings else ()


def items(model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
    """From the last layer's output to the loss."""
    local, hidden = shape.local_tokens, ELEMENT * shape.tokens * model.hidden
    return (
        layer_input(ELEMENT * local * model.hidden),
        norm("final_norm", local, model.hidden),
        *enter("head_gather", hidden, shape),
        linear("head", Matmul(shape.tokens, model.hidden, model.vocab // shape.tensor)),
        *regather("head_regather", hidden, shape),
        *_loss(shape, shape.tokens * model.vocab // shape.tensor),
    )


def _loss(shape: Shape, logits: int) -> tuple[Item, ...]:
    """The fp32 copy of the logits, made by `loss_max`, is what is kept."""
    single = SINGLE * logits
    cast = Work(0.0, ELEMENT * logits + single, 1)
    twice = Work(0.0, 2 * single, 1)
    return (
        streaming("loss_max", cast, cast, single, 0.0, "loss"),
        *_agree("loss_max_reduce", SINGLE * shape.tokens, shape),
        streaming("loss_exp", Work(0.0, 3 * single, 2), Work(), 0.0, 0.0, "loss"),
        *_agree("loss_sum_reduce", 2 * SINGLE * shape.tokens, shape),
        streaming("loss_softmax", twice, twice, 0.0, 0.0, "loss"),
    )


def _agree(name: str, size: float, shape: Shape) -> tuple[Exchange, ...]:
    if shape.tensor == 1:
        return ()
    return (Exchange(name, "tensor", size, "all_reduce", None),)
