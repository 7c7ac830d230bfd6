"""What an evaluation asks of the model that it judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from reference.dialog import Dialog
from reference.generate.generator import Generator
from reference.generate.request import Reply, Sampling


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is to be gone on with: text, or a dialogue."""

    said: str | Dialog
    sampling: Sampling
    context: int | None
    """Tokens of prompt and answer; None: as many as the model was trained with."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a prompt; no reply where it was refused as too long."""

    reply: Reply | None
    cut: int = 0
    """Tokens that were cut from the beginning of the prompt."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A continuation behind its context, how unlikely it is, and what was cut."""

    nats: float
    tokens: int
    cut: int
    """Tokens cut from the beginning of the context."""


@dataclass(frozen=True, slots=True)
class Read:
    """A text, its length, and how unlikely it is, its end included."""

    nats: float
    tokens: int
    bytes: int


class Subject(Protocol):
    """What is judged. Equal calls in equal order after `begin` give equal answers, as far as the
    model itself does."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Which model it is, as JSON."""
        ...

    @property
    def generator(self) -> Generator:
        """The same model in dialogues."""
        ...

    @property
    def held_out(self) -> Sequence[str] | None:
        """Held-out documents of its training text; None where there are none."""
        ...

    def refusal(self, *, chat: bool, reads: bool) -> str | None:
        """Why it cannot be asked so; None where it can."""
        ...

    def begin(self) -> None:
        """Forget what earlier calls left behind."""
        ...

    def tokens(self, text: str) -> int:
        """Tokens of a text; about, where nobody knows."""
        ...

    def window(self, context: int | None) -> int | None:
        """Tokens that prompt and answer may have; None: nobody knows."""
        ...

    def write(self, prompts: Sequence[Prompt]) -> list[Answer]:
        """The answers, in order."""
        ...

    def fits(self, pairs: Sequence[tuple[str, str]], context: int | None) -> list[Fit]:
        """How unlikely each second text is behind the first one."""
        ...

    def read(self, texts: Sequence[str], context: int | None) -> list[Read]:
        """How unlikely whole texts are."""
        ...
