"""A run as a row of stages: what `train` describes, then the long-context ones.

The sequence-wise balance loss of DeepSeek-V3 (arXiv:2412.19437, equations 17 to 20).

For each sequence, alpha x sum over experts of f_e P_e: f_e = E / (K T) x tokens that chose e, P_e =
mean over tokens of the share of e in the sum of affinities. It keeps single sequences from an
extreme; the router's bias keeps the load of a step even.

It is added to no loss: each router's weights pass through a node that gives the term's gradient to
the affinities, so that it is right under recomputation, too, and logged losses stay comparable.

Shapes: B batch, T tokens of a sequence, N = B T, E experts, K experts per token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import gcd
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from reference.config import MAIN, RunSpec, StageSpec, TrainSpec
from reference.model import Transformer
from reference.model.moe import Router
from reference.optim.spec import learning_rate
from twin.spec.model import Rope, Yarn


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps of one kind. `first` and `end` count the run's steps from 0."""

    name: str
    first: int
    end: int
    sequence: int
    micro_batch: int
    accumulate: int
    rope: Rope
    rates: tuple[float, float] | None
    """Of the first and the last step; None: the schedule's."""

    @property
    def tokens(self) -> int:
        """Per step."""
        return self.sequence * self.micro_batch * self.accumulate

    def learning_rate(self, run: RunSpec, step: int) -> float:
        """Of the run's step at this place, from 0."""
        if self.rates is None:
            return learning_rate(step, run.schedule, run.optimizer.lr)
        first, last = self.rates
        return first + (last - first) * (step - self.first) / max(1, self.end - self.first - 1)


def stages_of(run: RunSpec) -> tuple[Stage, ...]:
    """All stages of a run, in order."""
    found = [_stage(MAIN, run.train, 0, run.model.rope, None)]
    for spec in run.stages:
        rope = _stretched(found[-1].rope, spec, run.train.sequence)
        rates = (spec.lr, spec.lr if spec.final_lr is None else spec.final_lr)
        found.append(_stage(spec.name, spec, found[-1].end, rope, rates))
    return tuple(found)


def _stage(
    name: str,
    spec: TrainSpec | StageSpec,
    first: int,
    rope: Rope,
    rates: tuple[float, float] | None,
) -> Stage:
    end = first + spec.steps
    return Stage(name, first, end, spec.sequence, spec.micro_batch, spec.accumulate, rope, rates)


def _stretched(rope: Rope, spec: StageSpec, original: int) -> Rope:
    """The rotations of a stage: as before, or stretched by its factor."""
    if spec.yarn is None:
        return rope
    if rope.yarn is not None:
        return rope.model_copy(update={"yarn": rope.yarn.model_copy(update={"factor": spec.yarn})})
    written = {"factor": spec.yarn, "original_context": f"{original}tok"}
    return rope.model_copy(update={"yarn": Yarn.model_validate(written)})


def microbatches(run: RunSpec) -> int:
    """Micro-batches that divide those of every stage's step: what replicas have to share."""
    return gcd(*(stage.accumulate for stage in stages_of(run)))


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
