"""The sequence-wise balance loss of DeepSeek-V3 (arXiv:2412.19437, equations 17 to 20).

For each sequence, alpha x sum over experts of f_e P_e: f_e = E / (K T) x tokens that chose e, P_e =
mean over tokens of the share of e in the sum of affinities. It keeps single sequences from an
extreme; the router's bias keeps the load of a step even.

It is added to no loss: each router's weights pass through a node that gives the term's gradient to
the affinities, so that it is right under recomputation, too, and logged losses stay comparable.

Shapes: B batch, T tokens of a sequence, N = B T, E experts, K experts per token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from reference.model import Transformer
from reference.model.router import Router


@contextmanager
def balanced(models: Iterable[Transformer], coefficient: float, sequence: int) -> Iterator[None]:
    """Within, every backward pass gives routers the gradient of the balance loss of the sequences
    of this length; a coefficient of 0 changes nothing."""
    if not coefficient:
        yield
        return

    def attach(router: Router, inputs: tuple[Tensor, ...], output: Any) -> Any:
        if not (router.training and torch.is_grad_enabled()):
            return output
        chosen_NK, weights_NK = output
        term = coefficient * sequence_loss(router, inputs[0], chosen_NK, sequence)
        return chosen_NK, _Attach.apply(weights_NK, term)

    routers = (router for model in models for router in model.routers())
    handles = [router.register_forward_hook(attach) for router in routers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def sequence_loss(router: Router, x_ND: Tensor, chosen_NK: Tensor, sequence: int) -> Tensor:
    """The mean over sequences of sum_e f_e P_e; 1 where all experts get the same."""
    experts, top_k = router.spec.experts, router.spec.top_k
    logits_NE = functional.linear(x_ND.float(), router.weight.float())
    if router.spec.scores == "sigmoid":
        scores_NE = logits_NE.sigmoid()
        shares_NE = scores_NE / scores_NE.sum(-1, keepdim=True)
    else:
        shares_NE = logits_NE.softmax(-1)
    ones_NE = torch.zeros_like(shares_NE).scatter_(-1, chosen_NK, 1.0)
    f_BE = ones_NE.view(-1, sequence, experts).mean(1) * (experts / top_k)
    p_BE = shares_NE.view(-1, sequence, experts).mean(1)
    return (f_BE * p_BE).sum(-1).mean()


class _Attach(torch.autograd.Function):
    """The first tensor as it is; the second is a term of the loss: its gradient is 1, or what the
    loss is scaled by."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, term: Tensor) -> Tensor:
        del ctx, term
        return x.view_as(x)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        del ctx
        return grad, torch.ones((), dtype=torch.float32, device=grad.device)
