"""The whole model: embedding, pre-norm blocks, a last norm, and the projection to the vocabulary.

A block is x + attention(norm(x)), then x + ffn(norm(x)).

First weights are normal, with a seed for each matrix that follows from its name: a weight starts
with the same numbers on any device, and on a rank that holds only some layers or experts. The
standard deviation is DeepSeek-V3's, 0.02 in its released configuration; K2's report names none.

Shapes: B batch, T tokens, D hidden, W words of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import torch
from torch import Tensor, nn

from reference.kernels.cross_entropy import cross_entropy
from reference.kernels.linear import embedding
from reference.memory.stash import layer
from reference.model.attention import Attention
from reference.model.gqa import GroupedQueryAttention
from reference.model.layers import Linear, RmsNorm, SwiGlu
from reference.model.mla import MultiLatentAttention
from reference.model.moe import Moe, Router
from reference.model.part import ModelPart, whole
from reference.model.rope import Positions
from twin.errors import Problem, ScenarioError
from twin.spec.model import GroupedAttention, LatentAttention, ModelSpec, Rope

IGNORED = -100
"""A target that no loss counts."""


class Embedding(nn.Module):
    """A row of the table per token."""

    def __init__(self, words: int, width: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(words, width, device=device, dtype=dtype))

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """[B, T, D]."""
        return embedding(tokens_BT, self.weight)


class Transformer(nn.Module):
    """A decoder-only transformer of the shape that a model YAML says, or a part of one, whose
    parameters have the names that they have in the whole.

    Parameters have no values until `reference.model.transformer.initialize` or a checkpoint gives
    them. Raises ScenarioError for what no block here can run.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        part: ModelPart | None = None,
    ) -> None:
        super().__init__()
        refuse_unsupported(spec)
        self.spec = spec
        self.part = part = part or whole(spec)
        self.device = torch.device(device)
        place = (self.device, dtype)
        if part.embedding or (part.head and spec.tied_embeddings):
            self.embedding = Embedding(spec.vocab, spec.hidden, *place)
        blocks = {
            str(i): TransformerBlock(spec, i, part, *place) for i in range(part.first, part.end)
        }
        self.layers = nn.ModuleDict(blocks)
        if part.head:
            self.final_norm = RmsNorm(spec.hidden, spec.norm_eps, *place)
            self.head = Linear(spec.hidden, spec.vocab, *place)
            if spec.tied_embeddings:
                self.head.weight = self.embedding.weight
        self.positions = _positions(spec, spec.rope)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Logits [B, T, W] of the token after each."""
        return self.head(self.hidden(tokens_BT))

    def hidden(self, given: Tensor) -> Tensor:
        """What the head reads, or the next part: [B, T, D]. Given are tokens [B, T], or what the
        part before gives."""
        x_BTD = self.embedding(given) if self.part.embedding else given
        for index, block in enumerate(self.layers.values(), self.part.first):
            x_BTD = layer(index, block, x_BTD, self.positions)
        return self.final_norm(x_BTD) if self.part.head else x_BTD

    def loss(self, given: Tensor, targets_BT: Tensor, weights_BT: Tensor | None = None) -> Tensor:
        """Mean cross-entropy over targets, in nats, from fp32 logits, or its sum weighted by
        target; targets of -100 count nothing."""
        x_ND, targets_N = self.hidden(given).flatten(0, 1), targets_BT.flatten()
        weights_N = None if weights_BT is None else weights_BT.flatten()
        learned_N = targets_N != IGNORED
        if not targets_N.is_meta and not learned_N.all():  # no logits for what nobody asks
            x_ND, targets_N = x_ND[learned_N], targets_N[learned_N]
            weights_N = None if weights_N is None else weights_N[learned_N]
        nats_N = cross_entropy(self.head(x_ND), targets_N)
        if weights_N is None:
            return nats_N.mean()
        return (nats_N * weights_N.to(nats_N.dtype)).sum()

    def attentions(self) -> Iterator[Attention]:
        """The attention block of every layer, in order."""
        return (module for module in self.modules() if isinstance(module, Attention))

    def routers(self) -> Iterator[Router]:
        """The router of every layer that has experts, in order."""
        return (module for module in self.modules() if isinstance(module, Router))

    def stretch(self, rope: Rope) -> None:
        """Use other rotations from now on, weights as they are: the start of a stage with longer
        sequences."""
        self.spec = self.spec.model_copy(update={"rope": rope})
        self.positions = _positions(self.spec, rope)
        for attention in self.attentions():
            attention.stretch(rope)


def _positions(spec: ModelSpec, rope: Rope) -> Positions:
    attention = spec.attention
    latent = isinstance(attention, LatentAttention)
    return Positions(rope, attention.qk_rope_head_dim if latent else attention.head_dim)


class TransformerBlock(nn.Module):
    """Attention and a feed-forward block, dense or of experts."""

    def __init__(
        self,
        model: ModelSpec,
        layer: int,
        part: ModelPart,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        place = (device, dtype)
        self.attention_norm = RmsNorm(model.hidden, model.norm_eps, *place)
        self.attention = _attention(model, *place)
        self.ffn_norm = RmsNorm(model.hidden, model.norm_eps, *place)
        has_experts = model.moe is not None and model.has_experts(layer)
        self.ffn = (
            Moe(model.moe, model.hidden, part, *place)
            if model.moe is not None and has_experts
            else SwiGlu(model.hidden, model.ffn.width, *place)
        )

    def forward(self, x_BTD: Tensor, positions: Positions) -> Tensor:
        """The next layer's input, [B, T, D]."""
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD), positions)
        return x_BTD + self.ffn(self.ffn_norm(x_BTD))


def _attention(model: ModelSpec, device: torch.device, dtype: torch.dtype) -> Attention:
    spec = model.attention
    if isinstance(spec, LatentAttention):
        return MultiLatentAttention(model, spec, device, dtype)
    return GroupedQueryAttention(model, spec, device, dtype)


CODE = "TW270"


def refuse_unsupported(model: ModelSpec) -> None:
    """Raises ScenarioError that names everything in the model that no block here can run."""
    attention, moe = model.attention, model.moe
    grouped = attention if isinstance(attention, GroupedAttention) else None
    found = {
        "attention.bias": grouped is not None and (grouped.bias or grouped.qkv_bias),
        "attention.sinks": grouped is not None and grouped.sinks,
        "attention.window": grouped is not None and grouped.window is not None,
        "attention.gated": grouped is not None and grouped.gated,
        "ffn.kind": model.ffn.kind != "swiglu",
        "ffn.bias": model.ffn.bias,
        "moe.bias": moe is not None and moe.bias,
        "moe.ungated": moe is not None and moe.ungated,
        "moe.latent": moe is not None and moe.latent is not None,
        "moe.clamp": moe is not None and moe.clamp is not None,
        "moe.shared_gate": moe is not None and moe.shared_gate,
        "mixer": model.mixer is not None,
        "pattern": bool(model.pattern),
        "norm": model.norm != "rmsnorm",
        "learned_positions": model.learned_positions > 0,
        "embedding_norm": model.embedding_norm,
        "dropout": model.dropout,
        "mtp_layers": model.mtp_layers > 0,
    }
    problems = [
        Problem(
            CODE,
            f"model.{field}",
            f"the reference cannot run `{field}` of {model.name}",
            "it runs RMSNorm, rotary positions, SwiGLU, latent or grouped attention and experts; "
            f"`--set model.{field}=...` changes the field",
        )
        for field, wrong in found.items()
        if wrong
    ]
    if problems:
        raise ScenarioError(problems)


STANDARD_DEVIATION = 0.02


@torch.no_grad()
def initialize(model: nn.Module, seed: int, first_expert: int = 0) -> None:
    """Fill every parameter in place: gains with 1, matrices at random; biases of routers with 0.

    `first_expert` is the number of the first expert that this model holds.
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.fill_(1.0)
        elif parameter.dim() == 2:
            _fill(parameter, seed, name)
        else:
            for index, matrix in enumerate(parameter):
                _fill(matrix, seed, f"{name}.{first_expert + index}")


def _fill(matrix: Tensor, seed: int, name: str) -> None:
    if matrix.is_meta:
        return
    digest = blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little", signed=True))
    drawn = torch.randn(matrix.shape, generator=generator) * STANDARD_DEVIATION
    matrix.copy_(drawn)
