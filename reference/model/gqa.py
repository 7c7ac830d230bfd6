"""Multi-head attention, grouped-query when there are fewer key-value heads (arXiv:2305.13245), with
Llama's rotary pairing.

Shapes: B batch, T tokens, D hidden, H heads, G key-value heads, Q head width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reference.model.attention import Attention
from reference.model.layers import Linear, RmsNorm
from reference.model.rope import Positions, rotate_halves
from twin.spec.model import GroupedAttention, ModelSpec


class GroupedQueryAttention(Attention):
    """One layer's attention with whole queries, keys and values."""

    def __init__(
        self, model: ModelSpec, spec: GroupedAttention, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(spec.heads, spec.head_dim, model.rope, device)
        self.kv_heads, self.width, self.rotary = spec.kv_heads, spec.head_dim, model.rotary
        place = (device, dtype)
        self.q = Linear(model.hidden, spec.heads * spec.head_dim, *place)
        self.k = Linear(model.hidden, spec.kv_heads * spec.head_dim, *place)
        self.v = Linear(model.hidden, spec.kv_heads * spec.head_dim, *place)
        self.out = Linear(spec.heads * spec.head_dim, model.hidden, *place)
        self.q_norm = RmsNorm(spec.head_dim, model.norm_eps, *place) if spec.qk_norm else None
        self.k_norm = RmsNorm(spec.head_dim, model.norm_eps, *place) if spec.qk_norm else None

    def forward(self, x_BTD: Tensor, positions: Positions) -> Tensor:
        """[B, T, D], before the residual."""
        turns = positions.turns(x_BTD.shape[1], x_BTD)
        q_BTHQ = self._head(self.q(x_BTD), self.heads, self.q_norm, turns)
        k_BTGQ = self._head(self.k(x_BTD), self.kv_heads, self.k_norm, turns)
        v_BTGQ = self.v(x_BTD).unflatten(-1, (self.kv_heads, -1))
        return self.out(self._attend(q_BTHQ, k_BTGQ, v_BTGQ).flatten(2))

    def _head(self, x_BTX: Tensor, heads: int, norm: RmsNorm | None, turns: Tensor) -> Tensor:
        x_BTHQ = x_BTX.unflatten(-1, (heads, -1))
        if norm is not None:
            x_BTHQ = norm(x_BTHQ)
        return rotate_halves(x_BTHQ, turns) if self.rotary else x_BTHQ

    def clip_rows(self) -> list[tuple[nn.Parameter, Tensor]]:
        """Query and key share gamma evenly (Kimi K2, arXiv:2507.20534, section 2.1, for multi-head
        attention); a key that several heads read stays, and the query takes all of it: OURS, since
        heads of one group have gammas of their own. With norms over heads the gains, not these
        rows, set the logits: nothing is clipped."""
        if self.q_norm is not None:
            return []
        shared = self.kv_heads < self.heads
        query = torch.full((self.heads, self.width), 1.0 if shared else 0.5)
        rows: list[tuple[nn.Parameter, Tensor]] = [(self.q.weight, query)]
        return rows if shared else [*rows, (self.k.weight, query.clone())]
