"""What is asked of an engine, and what it tells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from torch import Tensor

from reference.inference.sampling import Sampling

Finish = Literal["stop", "length", "cancelled", "error"]
"""Why a choice ended: it said all, met its bound, nobody reads on, or its logits are no numbers."""


class Constraint(Protocol):
    """What a choice may say next; it never changes, each token gives another."""

    @property
    def structured(self) -> bool:
        """Whether the next token belongs to a call or to JSON: no text that stop strings end."""
        ...

    def allowed(self) -> Tensor:
        """Which words may come next, [W] of bool."""
        ...

    def after(self, token: int) -> Constraint:
        """What may follow an allowed token."""
        ...


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A prompt, and how to go on from it."""

    prompt: tuple[int, ...]
    max_tokens: int
    choices: int = 1
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    """Texts that end a choice; they are not part of it."""
    stop_tokens: frozenset[int] = frozenset()
    """Ids that end a choice, beside the end of a document; they have no text."""
    top: int = 0
    """How many of the likeliest tokens are told beside each one."""
    constraint: Constraint | None = None
    min_tokens: int = 0
    """No token that ends a choice is drawn before; without effect beside a constraint."""


@dataclass(frozen=True, slots=True)
class GeneratedToken:
    """One token of a choice."""

    token: int
    logprob: float
    """Of the model at temperature 1, in nats."""
    sampled_logprob: float
    """Of what it was drawn from, in nats."""
    top: tuple[tuple[int, float], ...]
    weights: int
    """Version of the weights that made it."""


@dataclass(frozen=True, slots=True)
class Update:
    """What a step added to a choice of a request."""

    request: int
    choice: int
    told: GeneratedToken | None
    """None where the choice ends without a token."""
    text: str
    """Further text that no stop string can take back any more."""
    finish: Finish | None = None
    cached: int = 0
    """Tokens of the prompt that were found in the cache, of this choice."""


class RefusedError(ValueError):
    """A request that this engine can never serve; `field` says which part of it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class QueueFullError(RuntimeError):
    """Too many wait already."""
