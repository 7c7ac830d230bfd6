"""What every attention block is: the maximum logit per head beside the output, and which rows of
which weights make a head's logits (what QK-clip scales).

Shapes: B batch, T queries, S keys, H heads, G key-value heads, Q query-key width, V value width.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from reference.kernels.attention import attention
from reference.memory.stash import op, recomputing
from reference.model.rope import Positions, logit_factor
from twin.spec.model import Rope


class Attention(nn.Module):
    """Causal attention of one layer."""

    max_logit_H: Tensor
    """fp32: the largest scaled logit of each head since the last reset, over visible pairs of
    every batch that ran in training mode (Kimi K2, arXiv:2507.20534, section 2.1)."""
    scale: float
    """What query-key products are multiplied with."""
    exact_above: float = -torch.inf
    """A maximum at or below it may be an upper bound: nobody needs to know it better."""

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
    def forward(self, x_BTD: Tensor, positions: Positions) -> Tensor:
        """The block's output, before the residual: [B, T, D]."""

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
            "attention_core", attention, q_BTHQ, k_BSGQ, v_BSGV, self.scale, self.exact_above
        )
        if self.training and not recomputing():
            torch.maximum(self.max_logit_H, max_logit_H, out=self.max_logit_H)
        return out_BTHV
