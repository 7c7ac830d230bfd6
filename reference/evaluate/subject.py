"""The model that is evaluated, as evaluation sees it; and generators (a server, the embedded rules)
as such a model: they write answers and give no log-likelihoods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from reference.dialog import Dialog, Message
from reference.generate.choose import choose
from reference.generate.request import ChatRequest, Generator, Reply, Sampling, complete_many
from reference.generate.server import ServerSpec
from twin.errors import TwinError

if TYPE_CHECKING:
    from reference.evaluate.trained import TrainedSubject

_BYTES_PER_TOKEN = 4
"""Of English text, about."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text to continue, or a dialogue."""

    said: str | Dialog
    sampling: Sampling
    context: int | None
    """Tokens of prompt and answer; None: as many as the model was trained with."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def request(self) -> ChatRequest:
        """The prompt as a dialogue; a text is a user's message."""
        said = self.said
        dialog = said if isinstance(said, Dialog) else Dialog((Message("user", said),))
        return ChatRequest(dialog.messages, dialog.tools, self.sampling, self.metadata)


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """The answer to a prompt; no reply where the prompt was refused as too long."""

    reply: Reply | None
    cut: int = 0
    """Tokens that were cut from the beginning of the prompt."""


@dataclass(frozen=True, slots=True)
class ContinuationFit:
    """The likelihood of a continuation behind its context."""

    nats: float
    tokens: int
    cut: int
    """Tokens cut from the beginning of the context."""


@dataclass(frozen=True, slots=True)
class TextFit:
    """The likelihood of a whole text, its end included."""

    nats: float
    tokens: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GeneratorSubject:
    """A generator as the model that is evaluated."""

    identity: Mapping[str, Any]
    generator: Generator
    at_once: int
    held_out: None = None

    def refusal(self, *, chat: bool, reads: bool) -> str | None:
        """Chat completions give no log-likelihoods of given text."""
        del chat
        return "chat completions give no log-likelihoods of given text" if reads else None

    def begin(self) -> None:
        """Nothing of earlier calls is kept here."""

    def tokens(self, text: str) -> int:
        """An estimate from the bytes."""
        return -(-len(text.encode()) // _BYTES_PER_TOKEN)

    def window(self, context: int | None) -> int | None:
        """As asked for."""
        return context

    def write(self, prompts: Sequence[Prompt]) -> list[SampledAnswer]:
        """Raises the first error, other than for a dialogue that is too long."""
        requests = [prompt.request() for prompt in prompts]
        answers: list[SampledAnswer] = []
        for reply in complete_many(self.generator, requests, self.at_once):
            if isinstance(reply, TwinError) and reply.problems[0].code != "TW552":
                raise reply
            answers.append(SampledAnswer(None if isinstance(reply, TwinError) else reply))
        return answers

    def fits(self, pairs: Sequence[tuple[str, str]], context: int | None) -> list[ContinuationFit]:
        """Refused before."""
        raise NotImplementedError

    def read(self, texts: Sequence[str], context: int | None) -> list[TextFit]:
        """Refused before."""
        raise NotImplementedError


Subject: TypeAlias = "GeneratorSubject | TrainedSubject"
"""A model that is evaluated. Equal calls in equal order after `begin` give equal answers, as far as
the model itself does."""


def generator_subject(name: str, spec: ServerSpec | None, at_once: int) -> GeneratorSubject:
    """The generator of this address or name. Raises what `choose` does."""
    kind = "server" if spec else "rules" if name == "rules" else "engine"
    identity = {"kind": kind, "name": name, **({"model": spec.model} if spec else {})}
    return GeneratorSubject(identity, choose(name, spec), at_once)
