"""The whole model: embedding, blocks, a last norm, and the projection to the vocabulary.

Shapes: B batch, T tokens, D hidden, W words of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from reference.kernels.embedding import embedding
from reference.memory.stash import layer
from reference.model.attention import Attention
from reference.model.block import Block
from reference.model.cache import Cache
from reference.model.linear import Linear
from reference.model.norm import RmsNorm
from reference.model.part import Part, whole
from reference.model.rope import Positions
from reference.model.router import Router
from reference.model.support import refuse_unsupported
from twin.spec.model import LatentAttention, ModelSpec, Rope

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

    Parameters have no values until `reference.model.initialize.initialize` or a checkpoint gives
    them. Raises ScenarioError for what no block here can run.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        part: Part | None = None,
    ) -> None:
        super().__init__()
        refuse_unsupported(spec)
        self.spec = spec
        self.part = part = part or whole(spec)
        self.device = torch.device(device)
        place = (self.device, dtype)
        if part.embedding or (part.head and spec.tied_embeddings):
            self.embedding = Embedding(spec.vocab, spec.hidden, *place)
        blocks = {str(i): Block(spec, i, part, *place) for i in range(part.first, part.end)}
        self.layers = nn.ModuleDict(blocks)
        if part.head:
            self.final_norm = RmsNorm(spec.hidden, spec.norm_eps, *place)
            self.head = Linear(spec.hidden, spec.vocab, *place)
            if spec.tied_embeddings:
                self.head.weight = self.embedding.weight
        self.positions = _positions(spec, spec.rope)

    def forward(self, tokens_BT: Tensor, cache: Cache | None = None) -> Tensor:
        """Logits [B, T, W] of the token after each. With a cache the tokens follow those in it."""
        return self.head(self.hidden(tokens_BT, cache))

    def hidden(self, given: Tensor, cache: Cache | None = None) -> Tensor:
        """What the head reads, or the next part: [B, T, D]. Given are tokens [B, T], or what the
        part before gives."""
        x_BTD = self.embedding(given) if self.part.embedding else given
        for index, block in enumerate(self.layers.values(), self.part.first):
            own = cache.layers[index] if cache else None
            x_BTD = layer(index, block, x_BTD, self.positions, own)
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
        logits_NW = self.head(x_ND)
        wide = logits_NW if logits_NW.dtype == torch.float64 else logits_NW.float()
        if weights_N is None:
            return functional.cross_entropy(wide, targets_N, ignore_index=IGNORED)
        nats_N = functional.cross_entropy(wide, targets_N, ignore_index=IGNORED, reduction="none")
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
