"""A model of this process as a generator of dialogues, whose answers follow from what it is asked
alone: requests that come together are computed together, in their order, on an engine that has
forgotten earlier ones (`begin`). `reference.inference.local` serves whoever comes, in any order.

By free decoding nothing holds tool calls to a form, so that what the model learned shows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

from reference.generate import chat
from reference.generate.request import Account, ChatRequest, Prices, Reply, ReplyPiece
from reference.inference.constraint import TokenMasks
from reference.inference.engine import Engine
from reference.inference.openai.body import ApiError, ApiRequest, ServedModel
from reference.inference.openai.chat import read_chat
from reference.inference.openai.choices import ChatChoice, usage_of
from reference.inference.request import EngineRequest, Update
from twin.errors import Problem, UsageError

NO_MARKERS: Final = "the model has no ids for the markers of the chat template"
_RESERVE: Final = "train it with `data.tokenizer.vocab` 10 below the model's `vocab`"
_TOGETHER: Final = 64
"""Requests that the engine has at one time."""
_NAME: Final = "judged"


class Decoder:
    """A model as a generator: one request at a time, or many with `complete_all`. A dialogue and
    its answer have at most `window` tokens."""

    def __init__(self, engine: Engine, window: int, *, constrained: bool = False) -> None:
        self.engine, self.window, self._constrained = engine, window, constrained
        self.account = Account(Prices())
        self._lock = threading.Lock()
        self._masks: TokenMasks | None = None

    def begin(self) -> None:
        """Forget prefixes that earlier requests left in the cache."""
        with self._lock:
            self.engine.scheduler.forget()

    def complete(self, request: ChatRequest) -> Reply:
        """The whole reply. Raises UsageError: TW552 for a dialogue that is too long, TW551 for what
        cannot be asked, TW584 where the model has no room for the template's markers."""
        (found,) = self.complete_all([request])
        if isinstance(found, UsageError):
            raise found
        return found

    def stream(self, request: ChatRequest) -> Iterator[ReplyPiece]:
        """The reply in one piece."""
        found = self.complete(request)
        yield ReplyPiece(found.text, found)

    def complete_all(self, requests: Sequence[ChatRequest]) -> list[Reply | UsageError]:
        """Replies in order, computed together; an error stands in the place of one that cannot be
        had. Raises UsageError TW584."""
        if not self.engine.vocabulary.markers:
            raise UsageError([Problem("TW584", "model", NO_MARKERS, _RESERVE)])
        with self._lock:
            chats = [self._chat(request) for request in requests]
            asked = [each.engine for each in chats if not isinstance(each, UsageError)]
            updates = iter(self._run(asked))
            return [
                each if isinstance(each, UsageError) else self._reply(request, each, next(updates))
                for request, each in zip(requests, chats, strict=True)
            ]

    def run(self, requests: Sequence[EngineRequest]) -> list[list[Update]]:
        """What the engine tells of each request, in order."""
        with self._lock:
            return self._run(requests)

    def _run(self, requests: Sequence[EngineRequest]) -> list[list[Update]]:
        updates: list[list[Update]] = []
        for first in range(0, len(requests), _TOGETHER):
            numbers = [self.engine.add(each) for each in requests[first : first + _TOGETHER]]
            told: dict[int, list[Update]] = {number: [] for number in numbers}
            while not self.engine.idle:
                for update in self.engine.step():
                    told[update.request].append(update)
            updates += told.values()
        return updates

    def _chat(self, request: ChatRequest) -> ApiRequest | UsageError:
        self._masks = self._masks or TokenMasks(self.engine.vocabulary)
        served = ServedModel(_NAME, self.engine.vocabulary, self.window, lambda: 0)
        more: dict[str, Any] = {"constrained": self._constrained, "return_raw": True}
        try:
            body = chat.body(request, _NAME, stream=False)
            return read_chat({**body, **more}, served, self._masks)
        except ApiError as error:
            long = error.param in ("messages", "max_tokens")
            fix = "shorten the dialogue, or raise the context" if long else "change the request"
            code = "TW552" if long else "TW551"
            return UsageError([Problem(code, "generator", error.message, fix)])

    def _reply(self, request: ChatRequest, asked: ApiRequest, updates: Sequence[Update]) -> Reply:
        choice = ChatChoice(self.engine.vocabulary, asked, 0)
        for update in updates:
            choice.add(update)
        whole = {"choices": [choice.whole()], "usage": usage_of(asked.engine, updates)}
        found = chat.reply(whole, request)
        self.account.reply(found.tokens)
        return found
