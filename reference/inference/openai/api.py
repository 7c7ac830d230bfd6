"""OpenAI's interface over one engine, for HTTP and for callers in this process: bodies are read,
answers are told whole or in chunks.

Choices of an answer, as documents: whole, and in chunks as their tokens come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from reference.dialog import Call, Message
from reference.inference.engine import Service, UpdateStream
from reference.inference.openai.body import (
    ApiError,
    ApiRequest,
    ServedModel,
    read_chat,
    read_completion,
)
from reference.inference.request import (
    EngineRequest,
    Finish,
    GeneratedToken,
    QueueFullError,
    TokenMasks,
    Update,
)
from reference.text.template import ARGUMENTS, CALL, CALL_END, CALLS_END, Segment, parse_answer
from reference.text.tokenizer import Vocabulary

FINISHES: Final[Mapping[Finish, str]] = {"stop": "stop", "length": "length", "cancelled": "stop"}
"""OpenAI's words for why a choice ended."""


class CompletionChoice:
    """A choice of /v1/completions as its tokens come."""

    def __init__(self, vocabulary: Vocabulary, request: ApiRequest, index: int) -> None:
        self._vocabulary, self._request, self._index = vocabulary, request, index
        self._text = ""
        self._tokens: list[GeneratedToken] = []
        self._finish: str | None = None

    def opening(self) -> list[dict[str, Any]]:
        """The chunks with which a stream begins."""
        return []

    def add(self, update: Update) -> list[dict[str, Any]]:
        """The chunk of an update, or nothing."""
        tokens = [update.told] if update.told else []
        self._tokens += tokens
        said = self._said(update)
        silent = not (said or self._finish or self._request.body.wants_logprobs)
        return [] if silent else [self._document(self._chunk(said), tokens)]

    def whole(self) -> dict[str, Any]:
        """The choice when it is over; calls that were not closed are left out."""
        return self._document(self._message(), self._tokens)

    def _document(self, said: dict[str, Any], tokens: Sequence[GeneratedToken]) -> dict[str, Any]:
        body = self._request.body
        shown = {"index": self._index, **said, "finish_reason": self._finish, "logprobs": None}
        if body.wants_logprobs:
            shown["logprobs"] = self._logprobs(tokens)
        if body.return_token_ids:
            shown["token_ids"] = [token.token for token in tokens]
        if body.return_raw and self._finish:
            # `template.segments_of` cuts it at the markers again.
            segments = self._vocabulary.segments([token.token for token in self._tokens])
            shown["raw"] = "".join(text for text, _ in segments)
        return shown

    def _said(self, update: Update) -> dict[str, Any]:
        """What an update adds to the choice; sets `_finish`."""
        self._text += update.text
        self._finish = FINISHES[update.finish] if update.finish else None
        return {"text": update.text} if update.text else {}

    def _chunk(self, said: dict[str, Any]) -> dict[str, Any]:
        return {"text": "", **said}

    def _message(self) -> dict[str, Any]:
        return {"text": self._text}

    def _logprobs(self, tokens: Sequence[GeneratedToken]) -> dict[str, Any]:
        spelled = self._vocabulary.spelled
        return {
            "tokens": [spelled(token.token) for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "sampled_logprobs": [token.sampled_logprob for token in tokens],
            "weight_versions": [token.weights for token in tokens],
            "top_logprobs": [
                {spelled(other): value for other, value in token.top} for token in tokens
            ],
        }


class ChatChoice(CompletionChoice):
    """A choice of /v1/chat/completions: content, and calls as they are written."""

    def __init__(self, vocabulary: Vocabulary, request: ApiRequest, index: int) -> None:
        super().__init__(vocabulary, request, index)
        self._first_call = request.first_call or 0
        self._free = request.engine.constraint is None
        self._inside = ""
        self._head: list[int] = []
        self._calls = 0

    def opening(self) -> list[dict[str, Any]]:
        """The role."""
        return [self._document(self._chunk({"role": "assistant", "content": ""}), [])]

    def _said(self, update: Update) -> dict[str, Any]:
        delta = self._delta(update)
        if update.finish:
            calls = self._parsed().calls
            called = calls and update.finish == "stop"
            self._finish = "tool_calls" if called else FINISHES[update.finish]
            if self._free and calls:
                shown = [{"index": at, **_shown_call(call)} for at, call in enumerate(calls)]
                delta = {**delta, "tool_calls": shown}
        return delta

    def _chunk(self, said: dict[str, Any]) -> dict[str, Any]:
        return {"delta": said}

    def _message(self) -> dict[str, Any]:
        calls = self._parsed().calls
        if not calls:
            return {"message": {"role": "assistant", "content": self._text}}
        shown = [_shown_call(call) for call in calls]
        content = self._text or None
        return {"message": {"role": "assistant", "content": content, "tool_calls": shown}}

    def _logprobs(self, tokens: Sequence[GeneratedToken]) -> dict[str, Any]:
        return {"content": [self._logprob(token) for token in tokens]}

    def _logprob(self, drawn: GeneratedToken) -> dict[str, Any]:
        """`token_id`, `weight_version` and `sampled_logprob`, that of the distribution that was
        drawn from, are ours."""

        def shown(token: int, logprob: float) -> dict[str, Any]:
            piece = self._vocabulary.piece(token)
            return {
                "token": self._vocabulary.spelled(token),
                "token_id": token,
                "logprob": logprob,
                "bytes": list(piece) if piece else None,
            }

        return {
            **shown(drawn.token, drawn.logprob),
            "sampled_logprob": drawn.sampled_logprob,
            "weight_version": drawn.weights,
            "top_logprobs": [shown(*other) for other in drawn.top],
        }

    def _parsed(self) -> Message:
        ids = [token.token for token in self._tokens]
        return parse_answer(self._vocabulary.segments(ids), self._first_call)

    def _delta(self, update: Update) -> dict[str, Any]:
        """What a token adds to the message."""
        token = None if update.told is None else update.told.token
        name = None if token is None else self._vocabulary.marker(token)
        outside = self._inside in ("", CALLS_END)
        self._inside = self._inside if name is None else name
        if outside:
            self._text += update.text
            return {"content": update.text} if update.text else {}
        if self._free:
            return {}  # a call shows only when it is closed
        if name == CALL:
            self._head = []
        elif name == ARGUMENTS:
            return {"tool_calls": [self._opened()]}
        elif name == CALL_END:
            self._calls += 1
        elif self._inside == CALL and token is not None:
            self._head.append(token)
        elif self._inside == ARGUMENTS and update.text:
            function = {"arguments": update.text}
            return {"tool_calls": [{"index": self._calls, "function": function}]}
        return {}

    def _opened(self) -> dict[str, Any]:
        ends = [Segment(ARGUMENTS, marker=True), Segment(CALL_END, marker=True)]
        head = [Segment(CALL, marker=True), *self._vocabulary.segments(self._head), *ends]
        call = parse_answer(head, self._first_call + self._calls).calls[0]
        return {"index": self._calls, **_shown_call(Call(call.id, call.name, ""))}


def _shown_call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def usage_of(request: EngineRequest, updates: Iterable[Update]) -> dict[str, Any]:
    """Tokens of an answer; those of the prompt count once."""
    listed = list(updates)
    prompt = len(request.prompt)
    generated = sum(update.told is not None for update in listed)
    cached = min((update.cached for update in listed if update.choice == 0), default=0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


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
        kind = ChatChoice if chats else CompletionChoice
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
            raise ApiError(500, update.text)
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
