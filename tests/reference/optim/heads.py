"""Attention written out head by head, from weights alone: what QK-clip's laws are checked against.

Nothing of `reference.model` is used. Shapes: H heads, N rows of input, Q query-key width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import Parameter


def _drawn(*shape: int, seed: int) -> Parameter:
    generator = torch.Generator().manual_seed(seed)
    return Parameter(torch.randn(shape, generator=generator, dtype=torch.float64))


class Heads(nn.Module):
    """Base: keeps the maxima that the test gives it, and forgets them on reset."""

    max_logit_H: Tensor  # noqa: N815

    def __init__(self, maxima: list[float]) -> None:
        super().__init__()
        self.register_buffer("max_logit_H", torch.tensor(maxima), persistent=False)
        self.heads = len(maxima)

    def reset_max_logit(self) -> None:
        """Begin a new step."""
        self.max_logit_H.fill_(-torch.inf)


class Latent(Heads):
    """Latent attention: 3 nope and 2 rope rows of query per head, 3 key and 4 value rows."""

    def __init__(self, maxima: list[float], seed: int = 0) -> None:
        super().__init__(maxima)
        self.q_up = _drawn(self.heads * 5, 6, seed=seed)
        self.kv_up = _drawn(self.heads * 7, 4, seed=seed + 1)
        self.rope_key = _drawn(2, 8, seed=seed + 2)

    def clip_rows(self) -> list[tuple[nn.Parameter, Tensor]]:
        query = torch.tensor([0.5, 0.5, 0.5, 1.0, 1.0]).expand(self.heads, -1)
        key_value = torch.tensor([0.5] * 3 + [0.0] * 4).expand(self.heads, -1)
        return [(self.q_up, query), (self.kv_up, key_value)]

    def logits(self, head: int) -> Tensor:
        """[N, N] of one head for fixed inputs of the layer."""
        x = [_drawn(9, width, seed=90 + width).detach() for width in (6, 4, 8)]
        query = x[0] @ self.q_up.detach()[head * 5 : head * 5 + 5].T
        key = x[1] @ self.kv_up.detach()[head * 7 : head * 7 + 3].T
        rope = x[2] @ self.rope_key.detach().T
        return query @ torch.cat((key, rope), dim=1).T

    def values(self) -> Tensor:
        """The rows that make values."""
        return self.kv_up.detach().view(self.heads, 7, 4)[:, 3:]


class Plain(Heads):
    """Multi-head attention of width 3."""

    def __init__(self, maxima: list[float], seed: int = 0) -> None:
        super().__init__(maxima)
        self.q = _drawn(self.heads * 3, 6, seed=seed)
        self.k = _drawn(self.heads * 3, 6, seed=seed + 1)

    def clip_rows(self) -> list[tuple[nn.Parameter, Tensor]]:
        half = torch.full((self.heads, 3), 0.5)
        return [(self.q, half), (self.k, half)]

    def logits(self, head: int) -> Tensor:
        """[N, N] of one head for fixed inputs of the layer."""
        x = _drawn(9, 6, seed=90).detach()
        rows = slice(head * 3, head * 3 + 3)
        return (x @ self.q.detach()[rows].T) @ (x @ self.k.detach()[rows].T).T
