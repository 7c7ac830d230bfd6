"""What every optimizer answers: how many bytes of state its weights need, and what one step does
and sends.

Weights are counted after tensor and expert sharding, per rank, as `twin.arch.ops.Weights` does.
ZeRO-1 then cuts states and elementwise work over the replicas: dense weights (replicated and
tensor) over `dense_shards` ranks, expert weights over `expert_shards`. The reduction of gradients
and the gathering of new parameters are the same for every optimizer and belong to the plan; an
optimizer reports only traffic of its own. Left out: clearing gradients and their global norm (one
pass each over the gradients), which the trainer's loop owns.

A new optimizer is one new module in this package, with one final subclass of `Optimizer`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from twin.arch.ops import Matrices, OpClass, Weights, Work
from twin.spec.base import Spec


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """What one step does on one rank: kernels, and payloads (bytes, gathered) that it all-gathers
    beside the parameters."""

    works: tuple[tuple[OpClass, Work], ...]
    gather_dense_bytes: float = 0.0
    """Over the replicas of dense weights."""
    gather_expert_bytes: float = 0.0
    """Over the replicas of expert weights."""


class Optimizer(Spec):
    """How weights move once the gradients of a step are known."""

    # Each member narrows it to its one literal. Any, because type checkers see no frozen field here
    # and forbid to narrow a mutable str.
    kind: Any

    @abstractmethod
    def state_bytes(self, weights: Weights) -> tuple[float, float]:
        """Bytes of optimizer state on one rank before ZeRO cuts them: of dense weights, and of
        expert weights."""

    @abstractmethod
    def step(
        self,
        weights: Weights,
        dense_shards: int,
        expert_shards: int,
        matrices: tuple[Matrices, ...] = (),
    ) -> OptimizerStep:
        """Work and extra traffic of one step on one rank.

        `matrices` lists the shapes behind the `*_matrices` counts of `weights`; optimizers that
        work element by element need none.
        """


def adamw_update(weights: float) -> Work:
    """The work of AdamW on some weights, fused into one kernel.

    HBM traffic of 30 bytes per weight: read gradient, master, both moments (4 x 4), write master
    and moments (3 x 4), write the bf16 copy (2). Mixed precision as in Rajbhandari et al. 2020
    (ZeRO), section 3.1, with fp32 gradients.
    """
    return Work(bytes=30.0 * weights, kernels=1 if weights else 0)


def dense_weights(weights: Weights) -> int:
    """Dense weights that an optimizer moves: replicated and tensor, without the buffers (expert
    biases), which a rule of their own changes."""
    return weights.replicated + weights.tensor - weights.buffers
