"""Exact parameter counts by part, and model FLOP per token.

Counts are those of the released checkpoint: the expert-bias buffers of the routers are among them,
multi-token-prediction layers are counted apart. A tied head is counted once, as the embedding.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from twin.arch.lora import adapters
from twin.arch.parameters import Parameter, Part, norm_gains
from twin.arch.remembered import remembered
from twin.arch.stack import kinds, mixing, parameters_of
from twin.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of a model. The first ten fields add up to `total`."""

    embedding: int
    positions: int
    attention: int
    dense_ffn: int
    router: int
    shared_experts: int
    routed_experts: int
    norms: int
    head: int
    vision: int
    """Of the encoder of images."""
    buffers: int
    """Of `router`: expert-bias, which no optimizer updates."""
    matrices: int
    """Weights of the matrices that Muon takes; AdamW takes what is neither these nor buffers."""
    matrix_tensors: int
    """How many such matrices there are."""
    activated_experts: int
    """Of `routed_experts`: the share that one token passes through."""
    output: int
    """Weights of the projection to the vocabulary, its own or shared with the embedding."""
    total_if_all_moe: int
    """`total` if the dense layers were MoE layers (how the K2 report's 1043B comes about)."""
    multi_token_prediction: int
    """Beside `total`: the layers that predict further tokens, with the projection and the three
    norms of each; their embedding and head are the model's (DeepSeek-V3, arXiv:2412.19437, section
    2.2; its README_WEIGHTS.md: 11.5B, and with both tables again the 14B beside its 671B)."""

    @property
    def total(self) -> int:
        """All parameters, buffers included."""
        return (
            self.embedding
            + self.positions
            + self.attention
            + self.dense_ffn
            + self.router
            + self.shared_experts
            + self.routed_experts
            + self.norms
            + self.head
            + self.vision
        )

    @property
    def adamw(self) -> int:
        """Parameters that a Muon run leaves to AdamW: tables, head, norms, biases."""
        return self.total - self.matrices - self.buffers

    @property
    def activated_without_embeddings(self) -> int:
        """Parameters that one token passes through, without token table, positions and head."""
        idle = self.routed_experts - self.activated_experts
        return self.total - idle - self.embedding - self.positions - self.head - self.vision

    @property
    def activated_with_head(self) -> int:
        """As before, with the projection to the vocabulary, tied or not."""
        return self.activated_without_embeddings + self.output

    @property
    def activated_with_embeddings(self) -> int:
        """As before, with input tables and the encoder of images; a tied table counts once. Equals
        `total` for a model without experts."""
        idle = self.routed_experts - self.activated_experts
        return self.total - idle


@remembered(64)
def parameters(model: ModelSpec) -> Parameters:
    """Exact parameter counts of a model."""
    table = _table(model)
    parts: Counter[Part] = Counter()
    for row, times in table:
        parts[row.part] += row.elements * times
    return Parameters(
        embedding=parts["embedding"],
        positions=parts["positions"],
        attention=parts["attention"],
        dense_ffn=parts["dense_ffn"],
        router=parts["router"],
        shared_experts=parts["shared_experts"],
        routed_experts=parts["routed_experts"],
        norms=parts["norms"],
        head=parts["head"],
        vision=parts["vision"],
        buffers=sum(row.elements * times for row, times in table if row.role == "buffer"),
        matrices=sum(row.elements * times for row, times in table if row.role == "matrix"),
        matrix_tensors=sum(row.count * times for row, times in table if row.role == "matrix"),
        activated_experts=int(parts["routed_experts"] * _used(model)),
        output=model.vocab * model.hidden,
        total_if_all_moe=_total(_table(_all_moe(model))),
        multi_token_prediction=(1 if model.mtp_shared else model.mtp_layers)
        * _prediction_layer(model)
        * bool(model.mtp_layers),
    )


def adapter_parameters(model: ModelSpec, rank: int) -> int:
    """Parameters of one low-rank adapter of each matrix of a model, without layers that predict
    further tokens."""
    return sum(
        row.elements * times
        for kind, times in Counter(kinds(model)).items()
        for row in adapters(parameters_of(model, kind), rank)
    )


def flop_per_token(model: ModelSpec, sequence: int) -> float:
    """Model FLOP per trained token, forward and backward: 6 per matrix weight that the token
    passes through, head in and look-up out, plus three times causal attention at this sequence
    length, or what mixes tokens instead (backward counted as twice forward; what is computed again
    does not count). An encoder of images is out. Modules that
    predict further tokens are out: they train the same model faster or slower, like recomputation
    (DeepSeek counts so: 385 TFLOP/s in its step of 19.93 s are 249.8 GFLOP per token, arXiv:
    2505.09343, Table 4, and this says 250.4; with the module it were 260.6).

    Source: the MFU convention of Chowdhery et al. 2022 (PaLM, arXiv:2204.02311, appendix B), with
    the causal half of the score matrix.
    """
    mixing = model.layers * mixing_flop(model, sequence)
    return 6.0 * float(matrix_weights(model) + model.vocab * model.hidden) + 3.0 * mixing


def mixing_flop(model: ModelSpec, sequence: int) -> float:
    """Forward FLOP per token and mean layer of what mixes tokens: all that grows with the sequence,
    or that no weight does."""
    found = Counter(model.blocks(layer)[0] for layer in range(model.layers))
    if len(found) == 1:
        return mixing(model, next(iter(found)), sequence)
    total = sum(times * mixing(model, one, sequence) for one, times in found.items())
    return total / model.layers


def matrix_weights(model: ModelSpec) -> Fraction:
    """Matrix weights of all layers that one token passes through, head and look-up out."""
    used = _used(model)
    return sum(
        (
            row.elements * times * (used if row.part == "routed_experts" else Fraction(1))
            for row, times in _table(model)
            if row.role == "matrix" and row.part != "vision"
        ),
        Fraction(0),
    )


def _table(model: ModelSpec) -> list[tuple[Parameter, int]]:
    """Every parameter row with the number of layers that have it."""
    return [
        (row, times)
        for kind, times in Counter(kinds(model)).items()
        for row in parameters_of(model, kind)
    ]


def _total(table: list[tuple[Parameter, int]]) -> int:
    return sum(row.elements * times for row, times in table)


def _prediction_layer(model: ModelSpec) -> int:
    """Parameters of one prediction module: its layers, norms of the two inputs and of
    the output, and the projection of both inputs to one."""
    rows = (*parameters_of(model, "mtp"), *norm_gains("norm", model.norm, model.hidden))
    return sum(row.elements for row in rows)


def _used(model: ModelSpec) -> Fraction:
    """Share of the routed experts that one token passes through."""
    return Fraction(model.moe.top_k, model.moe.experts) if model.moe else Fraction(0)


def _all_moe(model: ModelSpec) -> ModelSpec:
    if model.moe is None:
        return model
    moe = model.moe.model_copy(update={"first_dense_layers": 0, "every": 1})
    pattern = tuple(re.sub(r"dense(@\d+)?", "moe", one) for one in model.pattern)
    return model.model_copy(update={"moe": moe, "pattern": pattern})
