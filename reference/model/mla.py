"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1): queries, and keys with
values, pass through low-rank latents; a head's key is a part without position and a rotary part
that all heads share.

Keys and values are made whole. `reference.inference.forward` decodes on the latents themselves.

Shapes: B batch, T tokens, D hidden, H heads, P width without position, R rotary
width, Q = P + R, V value width, L query latent, C key-value latent.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reference.memory.stash import op
from reference.model.attention import Attention
from reference.model.layers import Linear, RmsNorm
from reference.model.rope import Positions, rotate
from twin.spec.model import LatentAttention, ModelSpec

LATENT_EPS = 1e-6
"""Latent norms have this epsilon whatever `norm_eps` says, as in DeepSeek-V3's released code."""


class MultiLatentAttention(Attention):
    """One layer's latent attention."""

    def __init__(
        self, model: ModelSpec, spec: LatentAttention, device: torch.device, dtype: torch.dtype
    ) -> None:
        width = spec.qk_nope_head_dim + spec.qk_rope_head_dim
        super().__init__(spec.heads, width, model.rope, device)
        self.nope, self.rotary, self.value = (
            spec.qk_nope_head_dim,
            spec.qk_rope_head_dim,
            spec.v_head_dim,
        )
        self.rank = spec.kv_lora_rank
        queries = spec.heads * width
        place = (device, dtype)
        if spec.q_lora_rank is None:
            self.q = Linear(model.hidden, queries, *place)
        else:
            self.q_down = Linear(model.hidden, spec.q_lora_rank, *place)
            self.q_norm = RmsNorm(spec.q_lora_rank, LATENT_EPS, *place)
            self.q_up = Linear(spec.q_lora_rank, queries, *place)
        self.kv_down = Linear(model.hidden, self.rank + self.rotary, *place)
        self.kv_norm = RmsNorm(self.rank, LATENT_EPS, *place)
        self.kv_up = Linear(self.rank, spec.heads * (self.nope + self.value), *place)
        self.out = Linear(spec.heads * self.value, model.hidden, *place)

    def forward(self, x_BTD: Tensor, positions: Positions) -> Tensor:
        """[B, T, D], before the residual."""
        latent_BTL = x_BTD if self._queries_whole else self.q_norm(self.q_down(x_BTD))
        kv_latent_BTC, shared_BTR = self.kv_down(x_BTD).split((self.rank, self.rotary), -1)
        turns = positions.turns(x_BTD.shape[1], x_BTD)
        kv_latent_BTC = self.kv_norm(kv_latent_BTC)
        q_BTHQ, k_BTHQ, v_BTHV = op(
            "mla_up", self._up, latent_BTL, kv_latent_BTC, shared_BTR, turns
        )
        return self.out(self._attend(q_BTHQ, k_BTHQ, v_BTHV).flatten(2))

    @property
    def _queries_whole(self) -> bool:
        return hasattr(self, "q")

    def _queries(self, latent_BTL: Tensor, turns_TR: Tensor) -> Tensor:
        project = self.q if self._queries_whole else self.q_up
        q_BTHQ = project(latent_BTL).unflatten(-1, (self.heads, -1))
        nope_BTHP, rope_BTHR = q_BTHQ.split((self.nope, self.rotary), -1)
        return _joined(nope_BTHP, rotate(rope_BTHR, turns_TR))

    def _up(
        self, latent_BTL: Tensor, kv_latent_BTC: Tensor, shared_BTR: Tensor, turns_TR: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Whole queries, keys and values. Values are copied out of the up-projection: a view would
        keep the keys' part alive, too."""
        made_BTHX = self.kv_up(kv_latent_BTC).unflatten(-1, (self.heads, -1))
        nope_BTHP, v_BTHV = made_BTHX.split((self.nope, self.value), -1)
        turned_BT1R = rotate(shared_BTR[:, :, None], turns_TR)
        k_BTHQ = _joined(nope_BTHP, turned_BT1R.expand(-1, -1, self.heads, -1))
        return self._queries(latent_BTL, turns_TR), k_BTHQ, _joined(v_BTHV)

    def clip_rows(self) -> list[tuple[nn.Parameter, Tensor]]:
        """The part without position is shared evenly between query and key; the rotary key belongs
        to all heads, so that the query's rotary rows take all of gamma; values take none
        (Kimi K2, arXiv:2507.20534, algorithm 1)."""
        up = self.q if self._queries_whole else self.q_up
        halves, none = torch.full((self.nope,), 0.5), torch.zeros(self.value)
        query = torch.cat((halves, torch.ones(self.rotary)))
        return [
            (up.weight, query.expand(self.heads, -1)),
            (self.kv_up.weight, torch.cat((halves, none)).expand(self.heads, -1)),
        ]


def _joined(*parts_BTHX: Tensor) -> Tensor:
    """A copy of the parts side by side, on a CPU head by head, as its attention reads them."""
    if parts_BTHX[0].device.type != "cpu":
        return torch.cat(parts_BTHX, -1)
    return torch.cat([part.transpose(1, 2) for part in parts_BTHX], -1).transpose(1, 2)
