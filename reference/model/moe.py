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
from reference.model.exchange import combine, dispatch, route
from reference.model.layers import SwiGlu
from reference.model.part import ModelPart
from reference.model.router import Router
from twin.spec.model import Moe as MoeSpec


class Experts(nn.Module):
    """The experts of a layer that are here: `up` [E, 2F, D], gates first, and `down` [E, D, F]."""

    def __init__(
        self, count: int, width: int, hidden: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.empty(count, 2 * width, hidden, device=device, dtype=dtype))
        self.down = nn.Parameter(torch.empty(count, hidden, width, device=device, dtype=dtype))

    def forward(self, x_RD: Tensor, weights_R: Tensor, ends_E: Tensor) -> Tensor:
        """Each row through its expert, times its weight."""
        # Gate and up have no name here, so that they are gone when the next product runs.
        x_RD = mark("moe_up_input", x_RD)
        y_RF = op(
            "swiglu",
            swiglu,
            mark("swiglu_input", grouped_matmul(x_RD, self.up.transpose(1, 2), ends_E)),
            weights_R,
        )
        return op("moe_down", grouped_matmul, y_RF, self.down.transpose(1, 2), ends_E)


class Moe(nn.Module):
    """The feed-forward block of a layer with experts."""

    def __init__(
        self, spec: MoeSpec, hidden: int, part: ModelPart, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.top_k = spec.top_k
        self.router = Router(spec, hidden, device, dtype)
        here = len(part.experts(spec.experts))
        self.experts = Experts(here, spec.width, hidden, device, dtype)
        self.exchange = part.exchange
        shared = spec.shared_width or spec.width * spec.shared_experts
        wanted = spec.shared_experts > 0
        self.shared = SwiGlu(hidden, shared, device, dtype) if wanted else None

    def forward(self, x_BTD: Tensor) -> Tensor:
        """The sum of each token's experts, shared ones included, before the residual."""
        x_ND = x_BTD.flatten(0, 1)
        chosen_NK, weights_NK = self.router(x_ND)
        order = order_of(chosen_NK, self.router.spec.experts)
        self.router.count(order.load_E)
        routed_BTD = self._routed(x_ND, weights_NK, order).view_as(x_BTD)
        return routed_BTD if self.shared is None else routed_BTD + self.shared(x_BTD)

    def _routed(self, x_ND: Tensor, weights_NK: Tensor, order: Order) -> Tensor:
        """Through the experts, here or on other ranks, and back."""
        if self.exchange is None:
            weights_R = weights_NK.flatten()[order.copies_R]
            rows_RD = self.experts(spread(x_ND, order, self.top_k), weights_R, order.ends_E)
            return gather(rows_RD, order, self.top_k)
        way = route(order, self.top_k, self.exchange)
        return combine(self.experts(*dispatch(x_ND, weights_NK, way), way.ends_L), way)
