"""Mixture of experts: a router, routed SwiGLU experts in grouped products, and a shared expert that
sees every token (DeepSeekMoE, arXiv:2401.06066).

Routing weights enter inside the experts' SwiGLU, before the down-projection, which is linear: the
sum is the same, and no backward pass needs the down-projection's output. No token is dropped.

Shapes: B batch, T tokens, N = B T, D hidden, E experts, K experts per token, R = N K rows, F width.

Which experts a token visits, and with which weights.

DeepSeek-V3's `noaux_tc` (arXiv:2412.19437, section 2.1.2): affinities are sigmoids of fp32 logits;
a bias per expert takes part in the choice and not in the weights, and moves against the load after
each step, so that no loss has to balance experts. With groups, a token's experts lie in the groups
whose two best affinities sum highest (section 2.1.2, "node-limited routing"). Softmax affinities
are DeepSeek-V2's and Mixtral's.

Shapes: N tokens, E experts, K experts per token, D hidden.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from reference.kernels.deferred_wgrad import current, weight_gradient
from reference.kernels.grouped import grouped_matmul
from reference.kernels.linear import product, product_of_columns
from reference.kernels.swiglu import swiglu
from reference.memory.stash import mark, op, recomputing
from reference.model.dispatch import Order, combine, dispatch, gather, order_of, route, spread
from reference.model.layers import SwiGlu
from reference.model.part import ModelPart
from twin.spec.model import Moe as MoeSpec


class Router(nn.Module):
    """Affinities, choice and weights of one layer; counts its load and moves its bias."""

    bias: Tensor
    """fp32 [E]: added to affinities when experts are chosen; no parameter, no gradient."""
    load_E: Tensor
    """int64: copies of tokens that each expert got since the last reset, in training mode."""

    def __init__(
        self, spec: MoeSpec, hidden: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.spec = spec
        self.weight = nn.Parameter(torch.empty(spec.experts, hidden, device=device, dtype=dtype))
        bias = torch.zeros(spec.experts, dtype=torch.float32, device=device)
        load = torch.zeros(spec.experts, dtype=torch.int64, device=device)
        self.forced = False
        """Whether tokens visit all experts in turn, whatever their affinities say."""
        self.register_buffer("bias", bias, persistent=spec.correction_bias)
        self.register_buffer("load_E", load, persistent=False)

    def forward(self, x_ND: Tensor) -> tuple[Tensor, Tensor]:
        """The chosen experts [N, K] and their weights [N, K], fp32."""
        return self.assign(_Logits.apply(x_ND, self.weight))

    def assign(self, logits_NE: Tensor) -> tuple[Tensor, Tensor]:
        """The same from the logits."""
        sigmoid = self.spec.scores == "sigmoid"
        scores_NE = logits_NE.sigmoid() if sigmoid else logits_NE.softmax(-1)
        chosen_NK = self._choose(scores_NE.detach())
        weights_NK = scores_NE.gather(-1, chosen_NK)
        if self.spec.normalize_weights:
            weights_NK = weights_NK / (weights_NK.sum(-1, keepdim=True) + 1e-20)
        return chosen_NK, weights_NK * self.spec.routed_scale

    def count(self, load_E: Tensor) -> None:
        """Add to the load; a forward that runs again counts nothing."""
        if self.training and not recomputing():
            self.load_E += load_E

    @torch.no_grad()
    def reset_load(self) -> None:
        """Forget the load: it belongs to one optimizer step."""
        self.load_E.zero_()

    @torch.no_grad()
    def update_bias(self, rate: float) -> None:
        """Move each expert's bias by `rate` against the sign of its load's excess over the mean
        (DeepSeek-V3, section 2.1.2). Once per optimizer step, on the load of all micro-batches."""
        if self.spec.correction_bias:
            load_E = self.load_E.to(self.bias.dtype)
            self.bias += rate * (load_E.mean() - load_E).sign()

    def _choose(self, scores_NE: Tensor) -> Tensor:
        spec = self.spec
        biased_NE = scores_NE + self.bias if spec.correction_bias else scores_NE
        if spec.groups > 1:
            biased_NE = _in_best_groups(biased_NE, spec)
        best_NK = biased_NE.topk(spec.top_k, dim=-1, sorted=False).indices
        if not self.forced:
            return best_NK
        # Only now, so that a forced step does the work of a free one.
        turns = torch.arange(best_NK.numel(), device=best_NK.device)
        return (turns % spec.experts).view_as(best_NK)


def _in_best_groups(biased_NE: Tensor, spec: MoeSpec) -> Tensor:
    """Minus infinity outside of the groups whose two best experts sum highest."""
    grouped = biased_NE.unflatten(-1, (spec.groups, -1))
    pair = min(2, grouped.shape[-1])
    best = grouped.topk(pair, dim=-1).values.sum(-1).topk(spec.top_groups, dim=-1).indices
    out = torch.ones(grouped.shape[:-1], dtype=torch.bool, device=biased_NE.device)
    out.scatter_(-1, best, value=False)
    return grouped.masked_fill(out[..., None], -torch.inf).flatten(-2)


class _Logits(torch.autograd.Function):
    """x W^T in fp32 (fp64 for float64), keeping x and W as they came: their fp32 copies, which
    plain autograd would keep, are made again."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, weight_ED: Tensor) -> Tensor:
        ctx.save_for_backward(x_ND, weight_ED)
        ctx.weight, ctx.deferred = weight_ED, current()
        return product(_wide(x_ND), _wide(weight_ED))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NE: Tensor) -> tuple[Tensor, Tensor | None]:
        x_ND, weight_ED = ctx.saved_tensors

        def make() -> Tensor:
            return product_of_columns(grad_NE, _wide(x_ND)).to(weight_ED.dtype)

        grad_x = product(grad_NE, _wide(weight_ED).T).to(x_ND.dtype)
        return grad_x, weight_gradient(ctx.deferred, ctx.weight, make)


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


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
            weights_R = weights_NK.flatten().index_select(0, order.copies_R)
            rows_RD = self.experts(spread(x_ND, order, self.top_k), weights_R, order.ends_E)
            return gather(rows_RD, order, self.top_k)
        way = route(order, self.top_k, self.exchange)
        return combine(self.experts(*dispatch(x_ND, weights_NK, way), way.ends_L), way)
