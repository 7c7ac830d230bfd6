"""An engine in this process: anything that answers bodies of chat completions.

The protocol is the body of an HTTP request without HTTP, so that an engine and its server answer by
the same function. No engine is imported here: `load` does so by name, when one is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from reference.generate import chat
from reference.generate.account import Account, Prices
from reference.generate.request import Piece, Reply, Request
from twin.errors import Problem, UsageError


class ChatEngine(Protocol):
    """What an engine must do. Safe to call from several threads."""

    def chat(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to a body of OpenAI's chat completions."""
        ...

    def chat_stream(self, body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """The same as chunks, of which the last ones hold `finish_reason` and `usage`."""
        ...


class Engine:
    """A generator over an engine of this process."""

    def __init__(self, engine: ChatEngine, model: str = "default") -> None:
        self._engine, self._model = engine, model
        self.account = Account(Prices())

    def complete(self, request: Request) -> Reply:
        """The whole reply. Raises UsageError (TW553) for an answer that is none."""
        self.account.attempt()
        try:
            answer = self._engine.chat(chat.body(request, self._model, stream=False))
            found = chat.reply(answer, request)
        except chat.AnswerError as error:
            raise _broken(error) from None
        self.account.reply(found.tokens)
        return found

    def stream(self, request: Request) -> Iterator[Piece]:
        """Pieces as the engine makes them."""
        self.account.attempt()
        assembly = chat.Assembly(request)
        try:
            for chunk in self._engine.chat_stream(chat.body(request, self._model, stream=True)):
                piece = assembly.add(chunk)
                if piece.text:
                    yield piece
            found = assembly.whole()
        except chat.AnswerError as error:
            raise _broken(error) from None
        self.account.reply(found.tokens)
        yield Piece("", found)


def _broken(error: Exception) -> UsageError:
    hint = "an engine answers as chat completions do"
    message = f"the engine's answer is not understood: {error}"
    return UsageError([Problem("TW553", "generator.engine", message, hint)])


def load(name: str, *words: Any) -> Engine:
    """The engine that `MODULE:FUNCTION` makes of these words. Raises UsageError (TW558)."""
    module, _, function = name.partition(":")
    try:
        make = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        message = f"`{name}` names no engine: {error}"
        fix = "write `rules`, http://HOST/v1, the folder of a training run, or MODULE:FUNCTION"
        raise UsageError([Problem("TW558", "generator", message, fix)]) from None
    return Engine(make(*words))
