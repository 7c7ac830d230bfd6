"""A generator without a model: rules by the kind of request, so that all runs on a fresh machine.

It is deterministic: chance is drawn from the sampling seed and the request's text. Tokens are
counted as words and marks, which is about what tokenizers give for English, and not the same.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator

from reference.dialog import numbered
from reference.generate.account import Account, Prices
from reference.generate.request import Piece, Reply, Request, Tokens
from reference.generate.skill import Task, kind_of, skills

_TOKEN = re.compile(r"\s*(?:\w+|[^\w\s])|\s+\Z")


class Rules:
    """The generator; `account` says what it has used, which costs nothing."""

    def __init__(self) -> None:
        self.account = Account(Prices())

    def complete(self, request: Request) -> Reply:
        """The skill's answer. Raises UsageError where no skill has the kind (TW557)."""
        self.account.attempt()
        kind, words = kind_of(request)
        answer = skills()[kind].answer(Task(request, words, _chance(request, kind)))
        text, finish = _bounded(answer.text, request)
        calls = tuple(
            numbered(name, request.calls + at, json.dumps(dict(given), ensure_ascii=False))
            for at, (name, given) in enumerate(answer.calls)
        )
        prompt = sum(len(_TOKEN.findall(one.content)) for one in request.messages)
        written = len(_TOKEN.findall(text)) + sum(
            len(_TOKEN.findall(call.arguments)) for call in calls
        )
        found = Reply(text, calls, Tokens(prompt, written), "tool_calls" if calls else finish)
        self.account.reply(found.tokens)
        return found

    def stream(self, request: Request) -> Iterator[Piece]:
        """The answer word by word."""
        found = self.complete(request)
        for token in _TOKEN.findall(found.text):
            yield Piece(token)
        yield Piece("", found)


def _chance(request: Request, kind: str) -> random.Random:
    said = [[one.role, one.content] for one in request.messages]
    words = {key: request.metadata[key] for key in sorted(request.metadata)}
    text = json.dumps([request.sampling.seed, kind, said, words], default=str)
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big"))


def _bounded(text: str, request: Request) -> tuple[str, str]:
    """The text up to a stop or the bound on tokens, and why it ends there."""
    ends = [at for stop in request.sampling.stop if stop and (at := text.find(stop)) >= 0]
    text = text[: min(ends)] if ends else text
    tokens = [found.end() for found in _TOKEN.finditer(text)]
    if len(tokens) > request.sampling.max_tokens:
        return text[: tokens[request.sampling.max_tokens - 1]], "length"
    return text, "stop"
