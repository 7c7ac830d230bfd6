"""A server, or the embedded rules: what they write can be judged, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reference.dialog import Dialog, Message
from reference.evaluate.subjects.subject import Answer, Fit, Prompt, Read
from reference.generate.choose import choose
from reference.generate.generator import Generator, complete_many
from reference.generate.request import Request
from reference.generate.server import ServerSpec
from twin.errors import TwinError

_BYTES = 4
"""Bytes of English text per token, about, where nobody counts."""


@dataclass(frozen=True, slots=True)
class AskedFor:
    """A generator as a subject."""

    identity: Mapping[str, Any]
    generator: Generator
    at_once: int
    held_out: None = None

    def refusal(self, *, chat: bool, reads: bool) -> str | None:
        """Chat completions tell no log-likelihood of a given text."""
        del chat
        return (
            "log-likelihoods of given text cannot be had over chat completions" if reads else None
        )

    def begin(self) -> None:
        """What it keeps is its own."""

    def tokens(self, text: str) -> int:
        """By bytes."""
        return -(-len(text.encode()) // _BYTES)

    def window(self, context: int | None) -> int | None:
        """What is asked for."""
        return context

    def write(self, prompts: Sequence[Prompt]) -> list[Answer]:
        """A text is sent as a user's message. Raises the first error that is not a dialogue's
        length."""
        requests = [_request(prompt) for prompt in prompts]
        found: list[Answer] = []
        for reply in complete_many(self.generator, requests, self.at_once):
            if not isinstance(reply, TwinError):
                found.append(Answer(reply))
            elif reply.problems[0].code == "TW552":
                found.append(Answer(None))
            else:
                raise reply
        return found

    def fits(self, pairs: Sequence[tuple[str, str]], context: int | None) -> list[Fit]:
        """Never asked for."""
        raise NotImplementedError

    def read(self, texts: Sequence[str], context: int | None) -> list[Read]:
        """Never asked for."""
        raise NotImplementedError


def ask_for(name: str, spec: ServerSpec | None, at_once: int) -> AskedFor:
    """The subject by its address or name. Raises what `choose` does."""
    kind = "server" if spec else "rules" if name == "rules" else "engine"
    identity = {"kind": kind, "name": name, **({"model": spec.model} if spec else {})}
    return AskedFor(identity, choose(name, spec), at_once)


def _request(prompt: Prompt) -> Request:
    said = prompt.said
    dialog = said if isinstance(said, Dialog) else Dialog((Message("user", said),))
    return Request(dialog.messages, dialog.tools, prompt.sampling, prompt.metadata)
