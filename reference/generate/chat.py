"""Requests and replies in the form of OpenAI's chat completions.

Source: OpenAI API reference, "Create chat completion" and "The chat completion chunk object".
Calls get Kimi K2's ids (`functions.NAME:INDEX`), whatever ids the server gives: its template needs
them, and they are the same in every run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reference.dialog import Call, message_json, numbered
from reference.generate.request import Piece, Reply, Request, Tokens


class AnswerError(ValueError):
    """An answer that is no chat completion."""


def body(request: Request, model: str, *, stream: bool) -> dict[str, Any]:
    """The JSON body of a request."""
    sampling = request.sampling
    made: dict[str, Any] = {
        "model": model,
        "messages": [message_json(one) for one in request.messages],
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


def reply(answer: Any, request: Request) -> Reply:
    """The reply of a whole answer. Raises AnswerError."""
    try:
        choice = answer["choices"][0]
        said = choice["message"]
        calls = [one["function"] for one in said.get("tool_calls") or ()]
        return Reply(
            said.get("content") or "",
            tuple(_call(one, at, request) for at, one in enumerate(calls)),
            _tokens(answer.get("usage")),
            choice.get("finish_reason") or "stop",
            _logprobs(choice.get("logprobs")),
            choice.get("raw"),
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise AnswerError(f"no chat completion ({type(error).__name__}: {error})") from None


def _call(function: Mapping[str, Any], at: int, request: Request) -> Call:
    return numbered(function["name"], request.calls + at, function["arguments"])


def _tokens(usage: Mapping[str, Any] | None) -> Tokens:
    usage = usage or {}
    return Tokens(usage.get("prompt_tokens"), usage.get("completion_tokens"))


def _logprobs(row: Mapping[str, Any] | None) -> tuple[float, ...] | None:
    content = (row or {}).get("content")
    return tuple(one["logprob"] for one in content) if content is not None else None


class Assembly:
    """Chunks of a streamed answer, put together."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._texts: list[str] = []
        self._functions: dict[int, dict[str, str]] = {}
        self._usage: Mapping[str, Any] | None = None
        self._finish: str | None = None
        self._logprobs: list[float] | None = None
        self._raw: str | None = None

    def add(self, chunk: Any) -> Piece:
        """The text of the next chunk, which may be none. Raises AnswerError."""
        try:
            self._usage = chunk.get("usage") or self._usage
            texts = [self._choice(one) for one in chunk["choices"] if one.get("index", 0) == 0]
        except (KeyError, TypeError, AttributeError) as error:
            raise AnswerError(f"no chunk ({type(error).__name__}: {error})") from None
        self._texts += texts
        return Piece("".join(texts))

    def _choice(self, choice: Mapping[str, Any]) -> str:
        said = choice.get("delta") or {}
        for part in said.get("tool_calls") or ():
            held = self._functions.setdefault(part["index"], {"name": "", "arguments": ""})
            for key in held:
                held[key] += part.get("function", {}).get(key) or ""
        self._finish = choice.get("finish_reason") or self._finish
        self._raw = choice.get("raw", self._raw)
        found = _logprobs(choice.get("logprobs"))
        if found is not None:
            self._logprobs = [*(self._logprobs or ()), *found]
        return said.get("content") or ""

    def whole(self) -> Reply:
        """The reply, when all chunks are in. Raises AnswerError where the answer never ended."""
        if self._finish is None:
            raise AnswerError("the stream ended before its reply did")
        functions = [self._functions[at] for at in sorted(self._functions)]
        return Reply(
            "".join(self._texts),
            tuple(_call(one, at, self._request) for at, one in enumerate(functions)),
            _tokens(self._usage),
            self._finish,
            None if self._logprobs is None else tuple(self._logprobs),
            self._raw,
        )
