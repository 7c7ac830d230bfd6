"""What every optimizer answers: how many bytes of state its weights need, and what one step does
and sends.

Weights are counted after tensor and expert sharding, per rank, as `twin.arch.ops.Weights` does.
ZeRO then cuts states and elementwise work over the ranks that hold the same weights. The reduction
of gradients and the gathering of new parameters are the same for every optimizer and belong to the
plan, as does the norm of the gradients; an optimizer reports only traffic of its own. Left out:
clearing the gradients (4 bytes per weight), and scaling those whose norm is above the limit (8
bytes per weight, in the steps that clip).

States may be in host memory (ZeRO-Offload, Ren et al. 2021, arXiv:2101.06840). Then either they
pass through the GPU, which updates them (ZeRO-Infinity, Rajbhandari et al. 2021, arXiv:2104.07857,
section 5), or the host does: gradients go down, new weights come up, and what the host's cores do
is bound by its memory. A part of the update that needs matrix products stays on the GPU.

A new optimizer is one new module in this package, with one final subclass of `Optimizer`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Literal

from twin.arch.ops import CollectiveKind, Matrices, OpClass, Weights, Work
from twin.spec.base import Spec

GRADIENT_BYTES = 4.0
"""Gradients are summed in fp32."""
WEIGHT_BYTES = 2.0
"""New weights are bf16."""
MASTER_BYTES = 4.0
"""Master weights are fp32."""

Holders = Literal["dense", "expert"]
"""The ranks that hold the same dense weights, or the same experts."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank holds, and with how many ranks it shares the update.

    `matrices` are the shapes behind the `*_matrices` counts of `weights`. `dense` and `expert` are
    the ranks that hold the same weights; `sharded` says whether ZeRO cuts their states over these.
    `attentions` counts attention blocks, `heads` their heads, and `query_key` the weights of the
    projections to queries and keys.
    """

    weights: Weights
    matrices: tuple[Matrices, ...] = ()
    dense: int = 1
    expert: int = 1
    sharded: bool = True
    attentions: int = 0
    heads: int = 0
    query_key: int = 0

    def only(self, holders: frozenset[Holders]) -> Share:
        """The part that is dense weights, that is experts, both or nothing."""
        weights, dense, expert = self.weights, "dense" in holders, "expert" in holders
        return replace(
            self,
            weights=Weights(
                replicated=dense * weights.replicated,
                tensor=dense * weights.tensor,
                expert=expert * weights.expert,
                replicated_matrices=dense * weights.replicated_matrices,
                tensor_matrices=dense * weights.tensor_matrices,
                expert_matrices=expert * weights.expert_matrices,
                buffers=dense * weights.buffers,
            ),
            matrices=tuple(
                group
                for group in self.matrices
                if ("expert" if group.bucket == "expert" else "dense") in holders
            ),
            attentions=dense * self.attentions,
            heads=dense * self.heads,
            query_key=dense * self.query_key,
        )

    def local(self, dense: float, expert: float) -> float:
        """Of so many dense and expert weights those whose states this rank has."""
        return dense / self.dense + expert / self.expert if self.sharded else dense + expert

    @property
    def learned(self) -> float:
        """Weights whose gradients and states this rank has."""
        return self.local(dense_weights(self.weights), self.weights.expert)


@dataclass(frozen=True, slots=True)
class Sent:
    """A collective of an optimizer's own, over the ranks that hold the same weights; `bytes` as
    for `twin.arch.ops.Exchange`."""

    name: str
    kind: CollectiveKind
    bytes: float
    holders: Holders


@dataclass(frozen=True, slots=True)
class Maxima:
    """A small all-reduce over the ranks that hold the same dense weights."""

    name: str
    bytes: float


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """What one step does on one rank: kernels, what has to arrive before them, and what they send
    beside the parameters."""

    works: tuple[tuple[OpClass, Work], ...]
    before: tuple[Sent, ...] = ()
    after: tuple[Sent, ...] = ()
    maxima: Maxima | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """One part of an update whose states are in host memory: `bytes` copied to or from the host, or
    read and written by the host's cores in its memory (those of copies included, because the same
    memory carries them), or kernels on the device. Parts follow each other, bucket by bucket."""

    place: Literal["to_host", "from_host", "host", "device"]
    bytes: float = 0.0
    works: tuple[tuple[OpClass, Work], ...] = ()


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
    def step(self, share: Share) -> OptimizerStep:
        """Work and extra traffic of one step on one rank."""

    @abstractmethod
    def on_host(self, share: Share) -> tuple[Phase, ...]:
        """One step on a rank whose states the host keeps and updates."""

    def through_device(self, share: Share) -> tuple[Phase, ...]:
        """One step on a rank whose states the host keeps and the device updates: all of them come
        up and go back."""
        states = share.local(*self.state_bytes(share.weights))
        return (
            Phase("from_host", states),
            Phase("device", works=self.step(share).works),
            Phase("to_host", states),
        )


def adamw_update(weights: float, moment: float = 4.0) -> Work:
    """The work of AdamW on some weights, fused into one kernel; `moment` are the bytes of one.

    HBM traffic of 30 bytes per weight: read gradient, master, both moments (4 x 4), write master
    and moments (3 x 4), write the bf16 copy (2); 22 with moments in bf16. Mixed precision as in
    Rajbhandari et al. 2020 (ZeRO), section 3.1, with fp32 gradients.
    """
    moved = GRADIENT_BYTES + 2 * (MASTER_BYTES + 2 * moment) + WEIGHT_BYTES
    return Work(bytes=moved * weights, kernels=1 if weights else 0)


def adamw_on_host(weights: float, moment: float = 4.0) -> tuple[Phase, ...]:
    """AdamW on some weights in host memory: gradients down, new weights up, and between them what
    the same update moves there. The cores keep up with their memory (DeepSpeed's CPU-Adam,
    ZeRO-Offload, section 5.1); they would not without vector instructions or with few threads."""
    down, up = GRADIENT_BYTES * weights, WEIGHT_BYTES * weights
    return (
        Phase("to_host", down),
        Phase("host", adamw_update(weights, moment).bytes + down + up),
        Phase("from_host", up),
    )


def squares(weights: float) -> Work:
    """The sum of squares of some gradients, for their norm: one pass that reads them."""
    return Work(bytes=GRADIENT_BYTES * weights, kernels=1 if weights else 0)


def dense_weights(weights: Weights) -> int:
    """Dense weights that an optimizer moves: replicated and tensor, without the buffers (expert
    biases), which a rule of their own changes."""
    return weights.replicated + weights.tensor - weights.buffers
