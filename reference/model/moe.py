"""Mixture of experts: a router, routed SwiGLU experts in grouped products, and a shared expert that
sees every token (DeepSeekMoE, arXiv:2401.06066).

Routing weights enter inside the experts' SwiGLU, before the down-projection, which is linear: the
sum is the same, and no backward pass needs the down-projection's output. No token is dropped.

Shapes: B batch, T tokens, N = B T, D hidden, E experts, K experts per token, R = N K rows, F width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reference.kernels.grouped import grouped_matmul
from reference.kernels.swiglu import swiglu
from reference.memory.stash import mark, op
from reference.model.dispatch import Order, gather, order_of, spread
from reference.model.ffn import SwiGlu
from reference.model.router import Router
from twin.spec.model import Moe as MoeSpec


class Experts(nn.Module):
    """All experts of a layer: `up` [E, 2F, D], gates first, and `down` [E, D, F]."""

    def __init__(
        self, spec: MoeSpec, hidden: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__()
        count, width = spec.experts, spec.width
        self.up = nn.Parameter(torch.empty(count, 2 * width, hidden, device=device, dtype=dtype))
        self.down = nn.Parameter(torch.empty(count, hidden, width, device=device, dtype=dtype))

    def forward(self, x_RD: Tensor, weights_R: Tensor, order: Order) -> Tensor:
        """Each row through its expert, times its weight."""
        x_RD = mark("moe_up_input", x_RD)
        up = grouped_matmul(x_RD, self.up.transpose(1, 2), order.ends_E)
        y_RF = op("swiglu", swiglu, mark("swiglu_input", up), weights_R)
        return op("moe_down", grouped_matmul, y_RF, self.down.transpose(1, 2), order.ends_E)


class Moe(nn.Module):
    """The feed-forward block of a layer with experts."""

    def __init__(
        self, spec: MoeSpec, hidden: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.top_k = spec.top_k
        self.router = Router(spec, hidden, device, dtype)
        self.experts = Experts(spec, hidden, device, dtype)
        shared = spec.shared_width or spec.width * spec.shared_experts
        wanted = spec.shared_experts > 0
        self.shared = SwiGlu(hidden, shared, device, dtype) if wanted else None

    def forward(self, x_BTD: Tensor) -> Tensor:
        """The sum of each token's experts, shared ones included, before the residual."""
        x_ND = x_BTD.flatten(0, 1)
        chosen_NK, weights_NK = self.router(x_ND)
        order = order_of(chosen_NK, self.router.spec.experts)
        self.router.count(order.load_E)
        weights_R = weights_NK.flatten()[order.copies_R]
        rows_RD = self.experts(spread(x_ND, order, self.top_k), weights_R, order)
        routed_BTD = gather(rows_RD, order, self.top_k).view_as(x_BTD)
        return routed_BTD if self.shared is None else routed_BTD + self.shared(x_BTD)
