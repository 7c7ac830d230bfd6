"""What is asked of a generator, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from reference.dialog import Call, Message, calls_of
from twin.spec.base import Count, Part, Spec, Whole


class Sampling(Spec):
    """How tokens are chosen, and when to stop."""

    temperature: float = Field(default=0.6, ge=0, le=10, description="0: the likeliest token")
    top_p: Part = Field(default=1.0, description="share of the probability that is kept")
    max_tokens: Count = Field(default=1024, description="tokens of a reply")
    stop: tuple[str, ...] = Field(default=(), description="texts before which a reply ends")
    seed: Whole = Field(default=0, description="of the choice of tokens, or of rules")
    logprobs: bool = Field(default=False, description="ask for log-probabilities of the tokens")


@dataclass(frozen=True, slots=True)
class Request:
    """A dialogue to go on with."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """Declarations, as in OpenAI's `tools`."""
    sampling: Sampling = field(default_factory=Sampling)
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What rules go by (`kind` and the words of that kind); never sent to a server."""

    @property
    def calls(self) -> int:
        """Calls in the dialogue so far, which the next one's index counts."""
        return calls_of(self.messages)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one reply, as the generator counts them; None where it does not say."""

    prompt: int | None
    reply: int | None


@dataclass(frozen=True, slots=True)
class Reply:
    """What the generator wrote, and why it ended: `stop`, `length`, `tool_calls`, or the server's
    own word."""

    text: str
    calls: tuple[Call, ...]
    tokens: Tokens
    finish: str
    logprobs: tuple[float, ...] | None = None
    raw: str | None = None
    """All that was written, the template's markers as text, where the generator says it."""

    def message(self) -> Message:
        """The reply as the dialogue's next turn."""
        return Message("assistant", self.text, self.calls)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text of a reply that is being written; the last one holds the whole reply."""

    text: str
    reply: Reply | None = None
