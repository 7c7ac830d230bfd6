"""Documents of the server: whole answers, chunks of streams, the list of models, metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from reference.inference.openai import chat, completion
from reference.inference.openai.asked import Asked, usage_of
from reference.inference.openai.fields import ApiError
from reference.inference.request import Update
from reference.inference.service import Stream
from reference.text.vocabulary import Vocabulary


class Choice(Protocol):
    """One choice of an answer, as it is told."""

    def opening(self) -> list[dict[str, Any]]:
        """What a stream begins with."""
        ...

    def add(self, update: Update) -> list[dict[str, Any]]:
        """What a stream tells now."""
        ...

    def whole(self) -> dict[str, Any]:
        """The choice when it is over."""
        ...


class Answer:
    """The answer to one request of either kind."""

    def __init__(self, vocabulary: Vocabulary, asked: Asked, stream: Stream) -> None:
        self._asked, self._updates = asked, list[Update]()
        chats = asked.first_call is not None
        self._object = chat.OBJECT if chats else completion.OBJECT
        self._id = f"{'chatcmpl' if chats else 'cmpl'}-{stream.number}"
        self._created = int(time.time())
        self._choices: list[Choice] = [
            chat.ChatChoice(vocabulary, asked, index)
            if chats
            else completion.CompletionChoice(vocabulary, asked, index)
            for index in range(asked.request.choices)
        ]

    def chunks(self, updates: Iterator[Update]) -> Iterator[dict[str, Any]]:
        """A stream's documents, the usage last where it was asked for."""
        for choice in self._choices:
            for told in choice.opening():
                yield self._document([told])
        for update in updates:
            for told in self._add(update):
                yield self._document([told])
        if self._asked.options.usage_last:
            yield self._document([], usage=usage_of(self._asked.request, self._updates))

    def whole(self, updates: Iterator[Update]) -> dict[str, Any]:
        """The document of all choices."""
        for update in updates:
            self._add(update)
        choices = [choice.whole() for choice in self._choices]
        usage = usage_of(self._asked.request, self._updates)
        more: dict[str, Any] = {"usage": usage}
        if self._asked.options.token_ids:
            more["prompt_token_ids"] = list(self._asked.request.prompt)
        return self._document(choices, chunk=False, **more)

    def _add(self, update: Update) -> list[dict[str, Any]]:
        if update.finish == "error":
            raise ApiError(500, "the model's logits are no finite numbers")
        self._updates.append(update)
        return self._choices[update.choice].add(update)

    def _document(
        self, choices: list[dict[str, Any]], *, chunk: bool = True, **more: Any
    ) -> dict[str, Any]:
        versions = [one.told.weights for one in self._updates if one.told]
        kind = f"{self._object}.chunk" if chunk and self._object == chat.OBJECT else self._object
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._asked.options.model,
            "choices": choices,
            "weight_version": max(versions, default=None),
            **more,
        }


def models(name: str) -> dict[str, Any]:
    """The list of the one model."""
    one = {"id": name, "object": "model", "created": 0, "owned_by": "reference"}
    return {"object": "list", "data": [one]}


_GAUGES: Final = {
    "running": "Sequences in the current steps.",
    "waiting": "Sequences that wait for blocks or for their turn.",
    "blocks": "Blocks of the cache.",
    "blocks_used": "Blocks that running sequences hold.",
    "blocks_kept": "Blocks kept for prefixes that may come again.",
    "cache_bytes": "Bytes of the cache, used or not.",
    "tokens_per_second": "Generated tokens per second over the last 10 seconds.",
    "weights": "Version of the weights.",
}
_COUNTERS: Final = {
    "preemptions": "Sequences that gave their blocks back.",
    "steps": "Forward passes.",
    "prompt_tokens": "Tokens of prompts of choices that ended.",
    "cached_tokens": "Tokens of these that were found in the cache.",
    "computed_tokens": "Tokens through the model.",
    "generated_tokens": "Tokens drawn.",
}


def metrics(figures: Mapping[str, float]) -> str:
    """Prometheus' text format, version 0.0.4."""
    lines: list[str] = []
    for kind, listed in (("gauge", _GAUGES), ("counter", _COUNTERS)):
        for name, meaning in listed.items():
            full = f"inference_{name}{'_total' if kind == 'counter' else ''}"
            lines += [f"# HELP {full} {meaning}", f"# TYPE {full} {kind}"]
            lines.append(f"{full} {figures[name]:g}")
    return "\n".join(lines) + "\n"
