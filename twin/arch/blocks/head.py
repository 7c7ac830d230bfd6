"""The output: final norm, projection to the vocabulary, cross-entropy (`twin.arch.cross_entropy`).

The vocabulary is cut over tensor ranks, which agree on the maximum and the sums of a row.
"""

from __future__ import annotations

from twin.arch.cross_entropy import head_and_loss
from twin.arch.kernels import ELEMENT, layer_input, norm
from twin.arch.ops import Item, Shape
from twin.arch.parameters import Parameter, enter, norm_gains, regather
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
    product, *loss = head_and_loss(shape, model.hidden, model.vocab // shape.tensor)
    return (
        layer_input(ELEMENT * local * model.hidden),
        norm("final_norm", local, model.hidden),
        *enter("head_gather", hidden, shape),
        product,
        *regather("head_regather", hidden, shape),
        *loss,
    )
