"""Requests and replies as OpenAI's chat completions.

Source: OpenAI API reference, "Create chat completion" and "The chat completion chunk object".
Calls get Kimi K2's ids (`functions.NAME:INDEX`) in place of the server's: the template needs them,
and they are equal in every run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reference.dialog import Call, message_json, numbered
from reference.generate.request import ChatRequest, Reply, ReplyPiece, Tokens


class AnswerError(ValueError):
    """A malformed chat completion."""


def body(request: ChatRequest, model: str, *, stream: bool) -> dict[str, Any]:
    """The JSON body of a request."""
    sampling = request.sampling
    made: dict[str, Any] = {
        "model": model,
        "messages": [message_json(message) for message in request.messages],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "seed": sampling.seed,
    }
    if sampling.stop:
        made["stop"] = list(sampling.stop)
    if sampling.logprobs:
        made["logprobs"] = True
    if request.tools:
        made["tools"] = [dict(tool) for tool in request.tools]
    if stream:
        made |= {"stream": True, "stream_options": {"include_usage": True}}
    return made


def reply(answer: Any, request: ChatRequest) -> Reply:
    """The reply of a whole answer. Raises AnswerError."""
    try:
        choice = answer["choices"][0]
        message = choice["message"]
        functions = [call["function"] for call in message.get("tool_calls") or ()]
        return Reply(
            message.get("content") or "",
            _calls(functions, request),
            _tokens(answer.get("usage")),
            choice.get("finish_reason") or "stop",
            _logprobs(choice.get("logprobs")),
            choice.get("raw"),
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise AnswerError(f"no chat completion ({type(error).__name__}: {error})") from None


def _calls(functions: Sequence[Mapping[str, Any]], request: ChatRequest) -> tuple[Call, ...]:
    return tuple(
        numbered(function["name"], request.calls + at, function["arguments"])
        for at, function in enumerate(functions)
    )


def _tokens(usage: Mapping[str, Any] | None) -> Tokens:
    usage = usage or {}
    return Tokens(usage.get("prompt_tokens"), usage.get("completion_tokens"))


def _logprobs(row: Mapping[str, Any] | None) -> tuple[float, ...] | None:
    content = (row or {}).get("content")
    return tuple(token["logprob"] for token in content) if content is not None else None


class Assembly:
    """Joins the chunks of a streamed answer."""

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._texts: list[str] = []
        self._functions: dict[int, dict[str, str]] = {}
        self._usage: Mapping[str, Any] | None = None
        self._finish: str | None = None
        self._logprobs: list[float] | None = None
        self._raw: str | None = None

    def add(self, chunk: Any) -> ReplyPiece:
        """The text of the next chunk, which may be empty. Raises AnswerError."""
        try:
            self._usage = chunk.get("usage") or self._usage
            choices = [choice for choice in chunk["choices"] if choice.get("index", 0) == 0]
            texts = [self._choice(choice) for choice in choices]
        except (KeyError, TypeError, AttributeError) as error:
            raise AnswerError(f"no chunk ({type(error).__name__}: {error})") from None
        self._texts += texts
        return ReplyPiece("".join(texts))

    def _choice(self, choice: Mapping[str, Any]) -> str:
        delta = choice.get("delta") or {}
        for part in delta.get("tool_calls") or ():
            function = self._functions.setdefault(part["index"], {"name": "", "arguments": ""})
            for key in function:
                function[key] += part.get("function", {}).get(key) or ""
        self._finish = choice.get("finish_reason") or self._finish
        self._raw = choice.get("raw", self._raw)
        logprobs = _logprobs(choice.get("logprobs"))
        if logprobs is not None:
            self._logprobs = [*(self._logprobs or ()), *logprobs]
        return delta.get("content") or ""

    def whole(self) -> Reply:
        """The reply after the last chunk. Raises AnswerError for an unfinished answer."""
        if self._finish is None:
            raise AnswerError("the stream ended before its reply did")
        functions = [self._functions[at] for at in sorted(self._functions)]
        return Reply(
            "".join(self._texts),
            _calls(functions, self._request),
            _tokens(self._usage),
            self._finish,
            None if self._logprobs is None else tuple(self._logprobs),
            self._raw,
        )
