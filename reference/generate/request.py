"""The interface of generators: requests, replies, accounts, and many requests in parallel.

Threads, not asyncio: a request waits for a socket or computes in this process, tools and the
sandbox wait for processes, and with one way of waiting callers stay plain loops.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pydantic import Field

from reference.dialog import Call, Message, calls_of
from twin.errors import TwinError
from twin.spec.base import Count, Part, Spec, Whole


class Sampling(Spec):
    """Sampling of tokens, and when to stop."""

    temperature: float = Field(default=0.6, ge=0, le=10)
    """0: the likeliest token"""
    top_p: Part = 1.0
    """share of the probability that is kept"""
    max_tokens: Count = 1024
    """tokens of a reply"""
    stop: tuple[str, ...] = ()
    """texts before which a reply ends"""
    seed: Whole = 0
    """seed of the sampling, or of rules"""
    logprobs: bool = False
    """return log-probabilities of the tokens"""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A dialogue to continue."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """Declarations as in OpenAI's `tools`."""
    sampling: Sampling = field(default_factory=Sampling)
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """For rules: `kind` and the words of that kind; never sent to a server."""

    @property
    def calls(self) -> int:
        """Calls in the dialogue so far: the index of the next call."""
        return calls_of(self.messages)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one reply as the generator counts them; None if it does not say."""

    prompt: int | None
    reply: int | None


@dataclass(frozen=True, slots=True)
class Reply:
    """A generator's reply. `finish` is `stop`, `length`, `tool_calls`, or the server's own word."""

    text: str
    calls: tuple[Call, ...]
    tokens: Tokens
    finish: str
    logprobs: tuple[float, ...] | None = None
    raw: str | None = None
    """The whole text with the template's markers, if the generator returns it."""

    def message(self) -> Message:
        """The reply as the dialogue's next message."""
        return Message("assistant", self.text, self.calls)


@dataclass(frozen=True, slots=True)
class ReplyPiece:
    """A piece of a streamed reply; the last one has the whole reply."""

    text: str
    reply: Reply | None = None


class Generator(Protocol):
    """Anything that continues a dialogue. Thread-safe."""

    def complete(self, request: ChatRequest) -> Reply:
        """The whole reply. Raises TwinError if there is none."""
        ...

    def stream(self, request: ChatRequest) -> Iterator[ReplyPiece]:
        """The reply in pieces; the last piece has the whole reply."""
        ...


def complete_many(
    generator: Generator, requests: Iterable[ChatRequest], at_once: int
) -> list[Reply | TwinError]:
    """Replies in the order of the requests, `at_once` in parallel. A failed request gives its error
    in place of a reply."""

    def complete(request: ChatRequest) -> Reply | TwinError:
        try:
            return generator.complete(request)
        except TwinError as error:
            return error

    with ThreadPoolExecutor(at_once, "generate") as pool:
        return list(pool.map(complete, requests))


class Prices(Spec):
    """US dollars per million tokens; 0 unless the user sets them."""

    prompt: float = Field(default=0.0, ge=0, le=1e6)
    """USD per million prompt tokens"""
    reply: float = Field(default=0.0, ge=0, le=1e6)
    """USD per million reply tokens"""


@dataclass(frozen=True, slots=True)
class Total:
    """The usage so far."""

    replies: int = 0
    attempts: int = 0
    """Requests that were sent, including failed ones."""
    prompt_tokens: int = 0
    reply_tokens: int = 0
    uncounted: int = 0
    """Replies without token counts; they are missing in tokens and cost."""
    usd: float = 0.0


class Account:
    """Thread-safe totals."""

    def __init__(self, prices: Prices) -> None:
        self._prices, self._lock, self._total = prices, threading.Lock(), Total()

    @property
    def total(self) -> Total:
        """The current totals."""
        return self._total

    def attempt(self) -> None:
        """Count a sent request."""
        with self._lock:
            self._total = replace(self._total, attempts=self._total.attempts + 1)

    def reply(self, tokens: Tokens) -> None:
        """Count a reply."""
        prompt, reply = tokens.prompt or 0, tokens.reply or 0
        counted = tokens.prompt is not None and tokens.reply is not None
        with self._lock:
            now = self._total
            prompts, replies = now.prompt_tokens + prompt, now.reply_tokens + reply
            self._total = replace(
                now,
                replies=now.replies + 1,
                prompt_tokens=prompts,
                reply_tokens=replies,
                uncounted=now.uncounted + (not counted),
                # From whole tokens, so that the sum does not depend on the order of replies.
                usd=(prompts * self._prices.prompt + replies * self._prices.reply) / 1e6,
            )
