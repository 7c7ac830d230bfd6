"""A generator by its name: `rules`, the address of a server, the folder of a training run, or
`MODULE:FUNCTION` of an engine; and generators over engines of this process.

An engine answers bodies of chat completions, so an engine and its server share one function. No
engine is imported here: `load` imports it by name.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from reference.generate import chat
from reference.generate.request import Account, ChatRequest, Prices, Reply, ReplyPiece
from reference.generate.rules import RuleGenerator
from reference.generate.server import Server, ServerSpec
from twin.errors import Problem, UsageError

RUNS: Final = "reference.inference.local:open_run"
"""Makes an engine of a run's folder; by name, since it needs torch."""


def choose(name: str, spec: ServerSpec | None = None) -> RuleGenerator | Server | EngineGenerator:
    """The generator of this name; `spec` configures a server. Raises UsageError (TW491, TW556,
    TW558)."""
    if name == "rules":
        return RuleGenerator()
    if name.startswith(("http://", "https://")):
        return Server(spec or ServerSpec(url=name))
    if Path(name).is_dir():
        return load(RUNS, name)
    return load(name)


class ChatEngine(Protocol):
    """The interface of an engine. Thread-safe."""

    def chat(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to a body of OpenAI's chat completions."""
        ...

    def chat_stream(self, body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """The answer in chunks; the last ones have `finish_reason` and `usage`."""
        ...


class EngineGenerator:
    """A generator over an engine of this process."""

    def __init__(self, engine: ChatEngine, model: str = "default") -> None:
        self._engine, self._model = engine, model
        self.account = Account(Prices())

    def complete(self, request: ChatRequest) -> Reply:
        """The whole reply. Raises UsageError (TW553) for a malformed answer."""
        self.account.attempt()
        try:
            answer = self._engine.chat(chat.body(request, self._model, stream=False))
            reply = chat.reply(answer, request)
        except chat.AnswerError as error:
            raise _broken(error) from None
        self.account.reply(reply.tokens)
        return reply

    def stream(self, request: ChatRequest) -> Iterator[ReplyPiece]:
        """Pieces as the engine writes them."""
        self.account.attempt()
        assembly = chat.Assembly(request)
        try:
            for chunk in self._engine.chat_stream(chat.body(request, self._model, stream=True)):
                piece = assembly.add(chunk)
                if piece.text:
                    yield piece
            reply = assembly.whole()
        except chat.AnswerError as error:
            raise _broken(error) from None
        self.account.reply(reply.tokens)
        yield ReplyPiece("", reply)


def _broken(error: Exception) -> UsageError:
    hint = "an engine answers as chat completions do"
    message = f"the engine's answer cannot be read: {error}"
    return UsageError([Problem("TW553", "generator.engine", message, hint)])


def load(name: str, *arguments: Any) -> EngineGenerator:
    """The engine that `MODULE:FUNCTION` makes. Raises UsageError (TW558)."""
    module, _, function = name.partition(":")
    try:
        make = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        message = f"`{name}` names no engine: {error}"
        fix = "write `rules`, http://HOST/v1, the folder of a training run, or MODULE:FUNCTION"
        raise UsageError([Problem("TW558", "generator", message, fix)]) from None
    return EngineGenerator(make(*arguments))
