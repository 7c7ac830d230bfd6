"""One transformer layer, pre-norm: x + attention(norm(x)), then x + ffn(norm(x)).

Shapes: B batch, T tokens, D hidden.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reference.model.attention import Attention
from reference.model.cache import LayerCache
from reference.model.ffn import SwiGlu
from reference.model.gqa import GroupedQueryAttention
from reference.model.mla import MultiLatentAttention
from reference.model.moe import Moe
from reference.model.norm import RmsNorm
from reference.model.part import Part
from reference.model.rope import Positions
from twin.spec.model import LatentAttention, ModelSpec


class Block(nn.Module):
    """Attention and a feed-forward block, dense or of experts."""

    def __init__(
        self,
        model: ModelSpec,
        layer: int,
        part: Part,
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

    def forward(
        self, x_BTD: Tensor, positions: Positions, cache: LayerCache | None = None
    ) -> Tensor:
        """The next layer's input, [B, T, D]."""
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD), positions, cache)
        return x_BTD + self.ffn(self.ffn_norm(x_BTD))


def _attention(model: ModelSpec, device: torch.device, dtype: torch.dtype) -> Attention:
    spec = model.attention
    if isinstance(spec, LatentAttention):
        return MultiLatentAttention(model, spec, device, dtype)
    return GroupedQueryAttention(model, spec, device, dtype)
