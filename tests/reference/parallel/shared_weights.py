"""A small model's weights in two chunks, and gradients that replicas sum: for one process, and for
ranks that each hold all dense weights and half of the experts, or all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import Parameter

from reference.optim.blocks import States, is_expert
from reference.optim.muonclip import MuonClip
from reference.optim.spec import OptimizerSpec
from reference.parallel.replicas import Holders, Replicas
from reference.parallel.timeline import Tape
from tests.reference.parallel.ranks import groups_of

Shapes = tuple[dict[str, tuple[int, ...]], ...]

ODD: Shapes = (
    {
        "embedding.weight": (13, 7),
        "layers.0.attention_norm.gain": (7,),
        "layers.0.attention.q_down.weight": (5, 7),
        "layers.0.attention.q_up.weight": (9, 5),
        "layers.0.ffn.down.weight": (7, 5),
    },
    {
        "layers.1.attention.q_down.weight": (5, 7),
        "layers.1.attention.q_up.weight": (9, 5),
        "layers.1.ffn.experts.up": (4, 6, 7),
        "layers.1.ffn.experts.down": (4, 7, 3),
        "layers.1.ffn.router.weight": (4, 7),
        "final_norm.gain": (7,),
        "head.weight": (13, 7),
    },
)
"""No equal part of anything ends with a matrix."""
WIDE: Shapes = (
    {"layers.0.attention.q_down.weight": (24, 40), "embedding.weight": (33, 24)},
    {
        "layers.1.attention.q_down.weight": (24, 40),
        "layers.1.attention.q_up.weight": (72, 24),
        "layers.1.attention_norm.gain": (24,),
        "layers.1.ffn.experts.up": (4, 40, 24),
        "layers.1.ffn.experts.down": (4, 24, 20),
    },
)
"""Matrices whose products have the same bits alone and in a stack."""
Draw = Callable[[tuple[int, ...], torch.Generator], Tensor]


def normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Numbers whose sums depend on their order."""
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def whole(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Whole numbers, whose sums do not."""
    return torch.randint(-99, 100, shape, generator=generator).double()


@dataclass(frozen=True)
class Case:
    """How a model is trained."""

    spec: OptimizerSpec
    zero: Literal[0, 1] = 1
    expert_ranks: int = 1
    shapes: Shapes = ODD
    dtype: torch.dtype = torch.float64
    draw: Draw = normal
    steps: int = 4

    def values(self) -> list[dict[str, Tensor]]:
        """The first weights of the whole model."""
        generator = torch.Generator().manual_seed(1)
        return [
            {name: normal(shape, generator).to(self.dtype) for name, shape in part.items()}
            for part in self.shapes
        ]

    def gradients(self, step: int, rank: int) -> Iterator[tuple[int, str, Tensor]]:
        """What one rank of four brings to a step, for the whole model: part, name, gradient."""
        generator = torch.Generator().manual_seed(100 * step + rank + 7)
        for number, part in enumerate(self.shapes):
            for name, shape in part.items():
                yield number, name, self.draw(shape, generator)


TEXTS = 4
"""As many gradients of a step, whatever the number of ranks."""


def alone(case: Case) -> tuple[dict[str, Parameter], MuonClip]:
    """One process, after the steps."""
    named = {name: Parameter(one) for part in case.values() for name, one in part.items()}
    optimizer = MuonClip(named.items(), case.spec)
    for step in range(case.steps):
        optimizer.zero_grad()
        for text in range(TEXTS):
            for _, name, gradient in case.gradients(step, text):
                _add(named[name], gradient)
        optimizer.step()
    return named, optimizer


@dataclass
class Rank:
    """One rank of several."""

    case: Case
    rank: int
    world: int
    parts: list[dict[str, Parameter]]
    optimizer: Replicas
    tape: Tape

    def share(self, name: str, tensor: Tensor) -> Tensor:
        """What this rank holds of a tensor of the whole model."""
        holders = self.optimizer.holders
        return (
            tensor.chunk(holders.expert_ranks)[holders.expert_rank] if is_expert(name) else tensor
        )

    def backward(self, step: int) -> None:
        """Sum this rank's gradients of a step; experts get those of all who send to them."""
        self.optimizer.zero_grad()
        expert_ranks = self.optimizer.holders.expert_ranks
        for text in range(TEXTS):
            for number, name, gradient in self.case.gradients(step, text):
                every = TEXTS // self.world * (expert_ranks if is_expert(name) else 1)
                mine = self.rank // (expert_ranks if is_expert(name) else 1)
                if text // every == mine:
                    _add(self.parts[number][name], self.share(name, gradient))
        for part in reversed(range(len(self.parts))):
            self.optimizer.reduce(part)

    def train(self, first: int, last: int) -> None:
        """Steps with weights published."""
        for step in range(first, last):
            self.backward(step)
            self.optimizer.step()
            self.optimizer.publish()

    def weights(self) -> dict[str, Tensor]:
        """Copies of all that is here."""
        return {name: p.detach().clone() for part in self.parts for name, p in part.items()}


def rank_of(rank: int, world: int, case: Case, states: States | None = None) -> Rank:
    """A rank before its first step: expert ranks are neighbours."""
    tape, count = Tape(), case.expert_ranks
    dense = groups_of("data", [range(world)], tape)
    replicas = [range(first, world, count) for first in range(count)]
    expert = groups_of("expert_data", replicas, tape)
    holders = Holders(dense, expert, case.zero, rank % count, count)
    parts = []
    for part in case.values():
        shared = {
            n: one.chunk(count)[rank % count] if is_expert(n) else one for n, one in part.items()
        }
        parts.append({name: Parameter(one.clone()) for name, one in shared.items()})
    optimizer = Replicas([list(part.items()) for part in parts], case.spec, holders, states)
    return Rank(case, rank, world, parts, optimizer, tape)


def _add(param: Parameter, gradient: Tensor) -> None:
    """As a backward pass does."""
    if param.grad is None:
        param.grad = gradient.to(param.grad_dtype or param.dtype)
    else:
        param.grad += gradient
