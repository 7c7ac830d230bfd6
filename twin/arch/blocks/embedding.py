"""The input: token embedding; learned positions, a norm and dropout if the model has them.

The vocabulary is cut over tensor ranks; each looks up what it holds and the sum over ranks
completes the rows. With learned positions Megatron-LM sums whole rows before it slices them for
sequence parallelism (`language_model_embedding.py`), otherwise it reduce-scatters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from twin.arch.kernels import ACCUMULATE, ELEMENT, MASK, layer_input, norm, streaming
from twin.arch.ops import Exchange, Item, Op, Shape, Work
from twin.arch.parameters import Parameter, norm_gains
from twin.spec.model import ModelSpec

TOKEN_ID: Final = 8
"""Bytes of a token's index (int64)."""


def parameters(model: ModelSpec) -> tuple[Parameter, ...]:
    """The token table, that of learned positions, and the norm over both."""
    tokens = Parameter("tokens", "embedding", "table", model.vocab, model.hidden, cut="rows")
    positions = Parameter("positions", "positions", "table", model.learned_positions, model.hidden)
    return (
        tokens,
        *((positions,) if model.learned_positions else ()),
        *(norm_gains("embedding_norm", model.norm, model.hidden) if model.embedding_norm else ()),
    )


def input_bytes(shape: Shape) -> float:
    """Bytes of the token indices."""
    return float(TOKEN_ID * shape.tokens)


def items(model: ModelSpec, shape: Shape) -> tuple[Item, ...]:
    """From token indices to the first layer's input."""
    return (
        layer_input(input_bytes(shape)),
        *rows(model, shape),
        *((_positions(model, shape),) if model.learned_positions else ()),
        *((_norm(model, shape.local_tokens),) if model.embedding_norm else ()),
        *((_dropout(model, shape.local_tokens),) if model.dropout else ()),
    )


def rows(model: ModelSpec, shape: Shape, saved: float = 0.0) -> tuple[Item, ...]:
    """The table's row of each token on this rank; the last step keeps `saved` bytes."""
    *steps, last = (_lookup("embedding_lookup", model, shape.tokens), *_complete(model, shape))
    return (*steps, replace(last, saved=saved))


def _lookup(name: str, model: ModelSpec, tokens: int) -> Op:
    """Copies a row per token; the gradient adds each row to the table's fp32 gradient."""
    rows = tokens * model.hidden
    forward = Work(0.0, TOKEN_ID * tokens + 2 * ELEMENT * rows, 1)
    weight = Work(0.0, TOKEN_ID * tokens + (ELEMENT + ACCUMULATE) * rows, 1)
    size = ELEMENT * rows
    return Op(name, "gather", forward, Work(), weight, output=size, late=size)


def _complete(model: ModelSpec, shape: Shape) -> tuple[Exchange, ...]:
    if shape.tensor == 1:
        return ()
    scatter = shape.sequence_parallel and not model.learned_positions
    return (
        Exchange(
            "embedding_reduce",
            "tensor",
            ELEMENT * shape.tokens * model.hidden,
            "reduce_scatter" if scatter else "all_reduce",
            "all_gather" if shape.sequence_parallel else None,
        ),
    )


def _positions(model: ModelSpec, shape: Shape) -> Op:
    """Adds one row per position; the gradient sums over sequences into the fp32 table."""
    rows = shape.tokens * model.hidden
    table = shape.sequence // shape.context * model.hidden
    forward = Work(0.0, ELEMENT * (2 * rows + table), 1)
    weight = Work(0.0, ELEMENT * rows + ACCUMULATE * table, 1)
    size = ELEMENT * rows
    return Op("embedding_positions", "bandwidth", forward, Work(), weight, output=size, late=size)


def _norm(model: ModelSpec, tokens: int) -> Op:
    """Its input is kept, too; the first layer's input is its output, which that layer keeps."""
    made = norm("embedding_norm", tokens, model.hidden)
    return replace(made, saved=ELEMENT * tokens * model.hidden)


def _dropout(model: ModelSpec, tokens: int) -> Op:
    rows = tokens * model.hidden
    moved = Work(0.0, (2 * ELEMENT + MASK) * rows, 1)
    return streaming("embedding_dropout", moved, moved, MASK * rows, ELEMENT * rows)
