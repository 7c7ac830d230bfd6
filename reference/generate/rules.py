"""A generator for machines without a model: a rule-based skill per kind of request.

It is deterministic: draws are seeded by the sampling seed and the request's text. Tokens are words
and punctuation marks, about as many as tokenizers give for English. The kind is in the metadata
(`kind`, with the words of that kind beside it) or in the first line of the system message, `kind:
NAME {"word": ...}`, which is stored with a dialogue.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from reference.dialog import json_object, numbered, texts_of
from reference.generate.request import Account, ChatRequest, Prices, Reply, ReplyPiece, Tokens
from twin.errors import Problem, UsageError

_TOKEN = re.compile(r"\s*(?:\w+|[^\w\s])|\s+\Z")


@dataclass(frozen=True, slots=True)
class SkillTask:
    """A request for a skill."""

    request: ChatRequest
    words: Mapping[str, Any]
    """The metadata without `kind`."""
    draw: random.Random
    """Seeded by the request's seed and text: equal requests get equal answers."""

    @property
    def text(self) -> str:
        """The user's last message, or an empty text."""
        texts = texts_of(self.request.messages, "user")
        return texts[-1] if texts else ""


@dataclass(frozen=True, slots=True)
class SkillAnswer:
    """A skill's text, and its calls as names with arguments."""

    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Skill:
    """A rule-based answer to one kind of request."""

    kind: str
    about: str
    """One sentence: what it does, and the words it reads."""
    answer: Callable[[SkillTask], SkillAnswer]


@cache
def skills() -> Mapping[str, Skill]:
    """All skills by their kind."""
    package = importlib.import_module("reference.generate.skills")
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    found = [skill for module in modules for skill in module.SKILLS]
    return {skill.kind: skill for skill in sorted(found, key=lambda skill: skill.kind)}


def kind_of(request: ChatRequest) -> tuple[str, Mapping[str, Any]]:
    """The kind of a request and its words. Raises UsageError (TW557) for a missing or unknown
    kind."""
    words = dict(request.metadata) or _in_system(request)
    kind = words.pop("kind", None)
    if kind not in skills():
        message = "the request has no kind" if kind is None else f"no skill has the kind `{kind}`"
        fix = f"set metadata `kind` to one of: {', '.join(skills())}; or ask a model"
        raise UsageError([Problem("TW557", "generator.kind", message, fix)])
    return str(kind), words


def _in_system(request: ChatRequest) -> dict[str, Any]:
    first = request.messages[0] if request.messages else None
    if first is None or first.role != "system" or not first.content.startswith("kind:"):
        return {}
    name, _, rest = first.content.splitlines()[0].removeprefix("kind:").strip().partition(" ")
    words = json_object(rest or "{}")
    if words is None:
        message = "the text after the kind in the system message is no JSON object"
        fix = 'write `kind: NAME {"word": ...}`'
        raise UsageError([Problem("TW557", "generator.kind", message, fix)])
    return {**words, "kind": name}


class RuleGenerator:
    """The rule-based generator; `account` has its usage, without cost."""

    def __init__(self) -> None:
        self.account = Account(Prices())

    def complete(self, request: ChatRequest) -> Reply:
        """The skill's answer. Raises UsageError (TW557) for an unknown kind."""
        self.account.attempt()
        kind, words = kind_of(request)
        answer = skills()[kind].answer(SkillTask(request, words, _draw(request, kind)))
        text, finish = _bounded(answer.text, request)
        calls = tuple(
            numbered(name, request.calls + at, json.dumps(dict(given), ensure_ascii=False))
            for at, (name, given) in enumerate(answer.calls)
        )
        prompt = sum(len(_TOKEN.findall(message.content)) for message in request.messages)
        written = len(_TOKEN.findall(text)) + sum(
            len(_TOKEN.findall(call.arguments)) for call in calls
        )
        reply = Reply(text, calls, Tokens(prompt, written), "tool_calls" if calls else finish)
        self.account.reply(reply.tokens)
        return reply

    def stream(self, request: ChatRequest) -> Iterator[ReplyPiece]:
        """The answer word by word."""
        reply = self.complete(request)
        for token in _TOKEN.findall(reply.text):
            yield ReplyPiece(token)
        yield ReplyPiece("", reply)


def _draw(request: ChatRequest, kind: str) -> random.Random:
    messages = [[message.role, message.content] for message in request.messages]
    words = {key: request.metadata[key] for key in sorted(request.metadata)}
    text = json.dumps([request.sampling.seed, kind, messages, words], default=str)
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big"))


def _bounded(text: str, request: ChatRequest) -> tuple[str, str]:
    """The text up to a stop text or the token limit, and why it ends there."""
    ends = [at for stop in request.sampling.stop if stop and (at := text.find(stop)) >= 0]
    text = text[: min(ends)] if ends else text
    tokens = [found.end() for found in _TOKEN.finditer(text)]
    if len(tokens) > request.sampling.max_tokens:
        return text[: tokens[request.sampling.max_tokens - 1]], "length"
    return text, "stop"
