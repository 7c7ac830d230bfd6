"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1): queries, and keys with
values, pass through low-rank latents; a head's key is a part without position and a rotary part
that all heads share.

In training keys and values are made whole. In decoding the key's up-projection is absorbed into the
query and the value's into the output (section 2.1.2), so that all heads read the one cached latent.

Shapes: B batch, T tokens, S tokens seen, D hidden, H heads, P width without position, R rotary
width, Q = P + R, V value width, L query latent, C key-value latent.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reference.kernels.attention import attention
from reference.memory.stash import op
from reference.model.attention import Attention, LayerCache
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

    def forward(
        self, x_BTD: Tensor, positions: Positions, cache: LayerCache | None = None
    ) -> Tensor:
        """[B, T, D], before the residual; with a cache the tokens follow those in it."""
        latent_BTL = x_BTD if self._queries_whole else self.q_norm(self.q_down(x_BTD))
        kv_latent_BTC, shared_BTR = self.kv_down(x_BTD).split((self.rank, self.rotary), -1)
        start = cache.length if cache else 0
        turns = positions.turns(start, start + x_BTD.shape[1], x_BTD)
        kv_latent_BTC = self.kv_norm(kv_latent_BTC)
        if cache is None:
            q_BTHQ, k_BTHQ, v_BTHV = op(
                "mla_up", self._up, latent_BTL, kv_latent_BTC, shared_BTR, turns
            )
            return self.out(self._attend(q_BTHQ, k_BTHQ, v_BTHV).flatten(2))
        turned_BTR = rotate(shared_BTR[:, :, None], turns)[:, :, 0]
        seen_BSC, seen_BSR = cache.extend(kv_latent_BTC, turned_BTR)
        attend = self._absorbed if cache.absorbed and start else self._from_latents
        out_BTHV = attend(self._queries(latent_BTL, turns), seen_BSC, seen_BSR)
        return self.out(out_BTHV.flatten(2))

    @property
    def _queries_whole(self) -> bool:
        return hasattr(self, "q")

    def _queries(self, latent_BTL: Tensor, turns_TR: Tensor) -> Tensor:
        project = self.q if self._queries_whole else self.q_up
        q_BTHQ = project(latent_BTL).unflatten(-1, (self.heads, -1))
        nope_BTHP, rope_BTHR = q_BTHQ.split((self.nope, self.rotary), -1)
        return torch.cat((nope_BTHP, rotate(rope_BTHR, turns_TR)), -1)

    def _up(
        self, latent_BTL: Tensor, kv_latent_BTC: Tensor, shared_BTR: Tensor, turns_TR: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Whole queries, keys and values. Values are copied out of the up-projection: a view would
        keep the keys' part alive, too."""
        turned_BT1R = rotate(shared_BTR[:, :, None], turns_TR)
        k_BTHQ, v_BTHV = self._keys_values(kv_latent_BTC, turned_BT1R)
        return self._queries(latent_BTL, turns_TR), k_BTHQ, v_BTHV

    def _keys_values(self, latent_BSC: Tensor, turned_BS1R: Tensor) -> tuple[Tensor, Tensor]:
        made = self.kv_up(latent_BSC).unflatten(-1, (self.heads, -1))
        nope_BSHP, v_BSHV = made.split((self.nope, self.value), -1)
        shared = turned_BS1R.expand(-1, -1, self.heads, -1)
        return torch.cat((nope_BSHP, shared), -1), v_BSHV.contiguous()

    def _from_latents(self, q_BTHQ: Tensor, seen_BSC: Tensor, seen_BSR: Tensor) -> Tensor:
        """Decoding the plain way: keys and values of everything seen are made again."""
        k_BSHQ, v_BSHV = self._keys_values(seen_BSC, seen_BSR[:, :, None])
        return self._attend(q_BTHQ, k_BSHQ, v_BSHV)

    def _absorbed(self, q_BTHQ: Tensor, seen_BSC: Tensor, seen_BSR: Tensor) -> Tensor:
        """Decoding on the latents themselves: multi-query attention with one key-value head of
        width C + R, whose values are the first C of it."""
        weight_HXC = self.kv_up.weight.unflatten(0, (self.heads, -1))
        key_HPC, value_HVC = weight_HXC.split((self.nope, self.value), 1)
        nope_BTHP, rope_BTHR = q_BTHQ.split((self.nope, self.rotary), -1)
        asked_BTHC = torch.einsum("bthp,hpc->bthc", nope_BTHP, key_HPC)
        out_BTHC, _, _ = attention(
            torch.cat((asked_BTHC, rope_BTHR), -1),
            torch.cat((seen_BSC, seen_BSR), -1)[:, :, None],
            seen_BSC[:, :, None],
            self.scale,
        )
        return torch.einsum("bthc,hvc->bthv", out_BTHC, value_HVC)

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
