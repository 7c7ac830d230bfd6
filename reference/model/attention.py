"""What every attention block is: the maximum logit per head beside the output, and which rows of
which weights make a head's logits (what QK-clip scales).

Shapes: B batch, T queries, S keys, H heads, G key-value heads, Q query-key width, V value width.

What decoding remembers: per layer and token the latent and the rotary key (576 numbers in Kimi
K2), or keys and values.

Shapes: B batch, T new tokens, S tokens seen, X and Y widths of the two things remembered.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from reference.kernels.attention import attention
from reference.memory.stash import op, recomputing
from reference.model.rope import Positions, logit_factor
from twin.spec.model import Rope


class LayerCache:
    """Two growing tensors of one layer, in storage that doubles when it is full."""

    def __init__(self, absorbed: bool = True) -> None:
        self.absorbed = absorbed
        """Whether latent attention decodes on latents; it gives the same numbers either way."""
        self.length = 0
        self._parts: list[Tensor] = []

    def extend(self, x_BTX: Tensor, y_BTY: Tensor) -> tuple[Tensor, Tensor]:
        """Append what belongs to T further tokens; both tensors, all S tokens long."""
        start, self.length = self.length, self.length + x_BTX.shape[1]
        if not self._parts or self.length > self._parts[0].shape[1]:
            self._grow((x_BTX, y_BTY), start)
        for part, new in zip(self._parts, (x_BTX, y_BTY), strict=True):
            part[:, start : self.length] = new.detach()
        first, second = (part[:, : self.length] for part in self._parts)
        return first, second

    def _grow(self, new: tuple[Tensor, Tensor], filled: int) -> None:
        size = 1 << max(self.length - 1, 63).bit_length()
        old, self._parts = self._parts, []
        for index, like in enumerate(new):
            part = like.new_empty(like.shape[0], size, like.shape[2])
            if filled:
                part[:, :filled] = old[index][:, :filled]
            self._parts.append(part)


class Cache:
    """The caches of all layers; decoding runs without gradients."""

    def __init__(self, layers: int, absorbed: bool = True) -> None:
        self.layers = [LayerCache(absorbed) for _ in range(layers)]

    @property
    def length(self) -> int:
        """Tokens seen."""
        return self.layers[0].length

    def bytes(self) -> int:
        """Bytes in use, without storage kept free for growth."""
        return sum(
            part[:, : layer.length].numel() * part.element_size()
            for layer in self.layers
            for part in layer._parts  # noqa: SLF001 - one noun in two classes
        )


class Attention(nn.Module):
    """Causal attention of one layer."""

    max_logit_H: Tensor
    """fp32: the largest scaled logit of each head since the last reset, over visible pairs of
    every batch that ran in training mode (Kimi K2, arXiv:2507.20534, section 2.1)."""
    scale: float
    """What query-key products are multiplied with."""

    def __init__(self, heads: int, query_width: int, rope: Rope, device: torch.device) -> None:
        super().__init__()
        self.heads = heads
        self.query_width = query_width
        self.stretch(rope)
        self.register_buffer(
            "max_logit_H",
            torch.full((heads,), -torch.inf, dtype=torch.float32, device=device),
            persistent=False,
        )

    @abstractmethod
    def forward(
        self, x_BTD: Tensor, positions: Positions, cache: LayerCache | None = None
    ) -> Tensor:
        """The block's output, before the residual. With a cache the tokens follow those in it."""

    @abstractmethod
    def clip_rows(self) -> list[tuple[nn.Parameter, Tensor]]:
        """Weights whose rows make queries and keys, viewed [H, X, in], and the power of the head's
        gamma that each row takes, [H, X], so that its logits scale by exactly gamma."""

    def stretch(self, rope: Rope) -> None:
        """Take the scale that belongs to these positions."""
        self.scale = self.query_width**-0.5 * logit_factor(rope)

    @torch.no_grad()
    def reset_max_logit(self) -> None:
        """Forget the maxima: they belong to one optimizer step."""
        self.max_logit_H.fill_(-torch.inf)

    def _attend(self, q_BTHQ: Tensor, k_BSGQ: Tensor, v_BSGV: Tensor) -> Tensor:
        out_BTHV, _, max_logit_H = op(
            "attention_core", attention, q_BTHQ, k_BSGQ, v_BSGV, self.scale
        )
        if self.training and not recomputing():
            torch.maximum(self.max_logit_H, max_logit_H, out=self.max_logit_H)
        return out_BTHV
