"""OpenAI's interface over one engine, for HTTP and for callers in this process: bodies are read,
answers are told whole or in chunks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from reference.inference.constraint import TokenMasks
from reference.inference.openai.body import ApiError, ApiRequest, ServedModel, read_completion
from reference.inference.openai.chat import read_chat
from reference.inference.openai.choices import (
    AnswerChoice,
    ChatChoice,
    CompletionChoice,
    usage_of,
)
from reference.inference.request import QueueFullError, Update
from reference.inference.service import Service, UpdateStream


class OpenAiApi:
    """A service under a model's name."""

    def __init__(self, service: Service, name: str) -> None:
        self.service = service
        seeds = count()
        vocabulary = service.engine.vocabulary
        capacity = service.engine.scheduler.capacity
        self.served = ServedModel(name, vocabulary, capacity, lambda: next(seeds))
        self._masks = TokenMasks(vocabulary)

    def read_chat(self, body: Any) -> ApiRequest:
        """The request of a body of chat completions. Raises ApiError."""
        return read_chat(body, self.served, self._masks)

    def read_completion(self, body: Any) -> ApiRequest:
        """The request of a body of completions. Raises ApiError."""
        return read_completion(body, self.served)

    @contextmanager
    def begin(
        self,
        request: ApiRequest,
        gone: Callable[[], bool] = lambda: False,
        wait: float | None = None,
    ) -> Iterator[tuple[AnswerDocuments, Iterator[Update], UpdateStream]]:
        """The answer, its updates until nobody reads on, and their stream; cancelled at the end if
        it is not over. Raises what `Service.submit` does; with `wait`, a full queue is asked again
        after so many seconds."""
        stream = self._submitted(request, wait)
        try:
            answer = AnswerDocuments(self.served, request, stream)
            yield answer, stream.read(gone), stream
        finally:
            self.service.cancel(stream)

    def _submitted(self, request: ApiRequest, wait: float | None) -> UpdateStream:
        while True:
            try:
                return self.service.submit(request.engine)
            except QueueFullError:
                if wait is None:
                    raise
                time.sleep(wait)


class AnswerDocuments:
    """The answer to one request of either kind."""

    def __init__(self, served: ServedModel, request: ApiRequest, stream: UpdateStream) -> None:
        self._name, self._request, self._updates = served.name, request, list[Update]()
        chats = request.first_call is not None
        self._object = "chat.completion" if chats else "text_completion"
        self._chunk_object = "chat.completion.chunk" if chats else self._object
        self._id = f"{'chatcmpl' if chats else 'cmpl'}-{stream.number}"
        self._created = int(time.time())
        kind: type[AnswerChoice] = ChatChoice if chats else CompletionChoice
        self._choices = [
            kind(served.vocabulary, request, index) for index in range(request.engine.choices)
        ]

    def chunks(self, updates: Iterator[Update]) -> Iterator[dict[str, Any]]:
        """A stream's documents, the usage last where the body asks for it."""
        for choice in self._choices:
            for chunk in choice.opening():
                yield self._document(self._chunk_object, [chunk])
        for update in updates:
            for chunk in self._add(update):
                yield self._document(self._chunk_object, [chunk])
        options = self._request.body.stream_options
        if options is not None and options.include_usage:
            yield self._document(self._chunk_object, [], usage=self._usage())

    def whole(self, updates: Iterator[Update]) -> dict[str, Any]:
        """The document of all choices."""
        for update in updates:
            self._add(update)
        more: dict[str, Any] = {"usage": self._usage()}
        if self._request.body.return_token_ids:
            more["prompt_token_ids"] = list(self._request.engine.prompt)
        return self._document(self._object, [choice.whole() for choice in self._choices], **more)

    def _usage(self) -> dict[str, Any]:
        return usage_of(self._request.engine, self._updates)

    def _add(self, update: Update) -> list[dict[str, Any]]:
        if update.finish == "error":
            raise ApiError(500, "the model's logits are not finite")
        self._updates.append(update)
        return self._choices[update.choice].add(update)

    def _document(self, kind: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        versions = [update.told.weights for update in self._updates if update.told]
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._name,
            "choices": choices,
            "weight_version": max(versions, default=None),
            **more,
        }
