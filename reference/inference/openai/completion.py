"""/v1/completions: text that goes on from a prompt of text or ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reference.inference.openai.asked import (
    TOP,
    Asked,
    Host,
    raw_of,
    read_bound,
    read_options,
    read_sampling,
    read_stop,
)
from reference.inference.openai.fields import FINISHES, Fields, wrong
from reference.inference.request import Request, Told, Update
from reference.text.vocabulary import Vocabulary

OBJECT = "text_completion"


def read_completion(body: Any, host: Host) -> Asked:
    """What a body asks for. Raises ApiError."""
    fields = Fields(body)
    # OpenAI's `logprobs` is a number here: of the likeliest tokens, 0 for the chosen one alone.
    wanted = fields.value("logprobs") is not None
    top = fields.whole("logprobs", 0, 0, TOP)
    options = read_options(fields, host, logprobs=wanted)
    prompt = _prompt(fields, host)
    choices = fields.whole("n", 1, 1, 128)
    fields.only("best_of", choices)
    fields.only("echo", False)
    fields.only("suffix", "")
    request = Request(
        prompt,
        read_bound(fields, ["max_tokens"], host, len(prompt), 16),
        choices,
        read_sampling(fields, host),
        read_stop(fields),
        frozenset(),
        top,
    )
    fields.refuse_unknown()
    return Asked(request, options)


def _prompt(fields: Fields, host: Host) -> tuple[int, ...]:
    given = fields.value("prompt")
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], str | list):
        given = given[0]
    if isinstance(given, str) and given:
        return tuple(host.vocabulary.encode(given))
    if isinstance(given, list) and given and all(type(one) is int for one in given):
        return tuple(given)
    raise wrong("prompt", "must be one text or one list of token ids, not empty")


class CompletionChoice:
    """One choice as its tokens come."""

    def __init__(self, vocabulary: Vocabulary, asked: Asked, index: int) -> None:
        self._vocabulary, self._asked, self._index = vocabulary, asked, index
        self._text = ""
        self._told: list[Told] = []
        self._finish: str | None = None

    def add(self, update: Update) -> list[dict[str, Any]]:
        """What a stream tells now: a choice, or nothing."""
        self._text += update.text
        told = [update.told] if update.told else []
        self._told += told
        self._finish = FINISHES[update.finish] if update.finish else None
        silent = not (update.text or self._finish or self._asked.options.logprobs)
        return [] if silent else [self._shown(update.text, told, self._finish)]

    def whole(self) -> dict[str, Any]:
        """The choice when it is over."""
        return self._shown(self._text, self._told, self._finish)

    def opening(self) -> list[dict[str, Any]]:
        """What a stream begins with: nothing."""
        return []

    def _shown(self, text: str, told: Sequence[Told], finish: str | None) -> dict[str, Any]:
        options = self._asked.options
        shown: dict[str, Any] = {"index": self._index, "text": text, "finish_reason": finish}
        shown["logprobs"] = self._logprobs(told) if options.logprobs else None
        if options.token_ids:
            shown["token_ids"] = [one.token for one in told]
        if options.raw and self._finish:
            shown["raw"] = raw_of(self._vocabulary, self._told)
        return shown

    def _logprobs(self, told: Sequence[Told]) -> dict[str, Any]:
        spelled = self._vocabulary.spelled
        return {
            "tokens": [spelled(one.token) for one in told],
            "token_logprobs": [one.logprob for one in told],
            "sampled_logprobs": [one.sampled_logprob for one in told],
            "weight_versions": [one.weights for one in told],
            "top_logprobs": [{spelled(token): value for token, value in one.top} for one in told],
        }
