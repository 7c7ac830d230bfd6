"""A generator of `reference.generate` (a server, an engine here) as one that rewrites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from reference.data.rephrase.embedded import Embedded
from reference.data.rephrase.generator import Generator, Message
from reference.dialog import Message as Turn
from reference.generate import generator as generate
from reference.generate.choose import choose
from reference.generate.request import Request, Sampling
from twin.errors import Problem, UsageError

_SEEDS: Final = 10**9
"""Seeds that a request may have."""


class Asking:
    """Rewrites by asking another generator; of a reply that ended early it takes what there is,
    which the fidelity check judges."""

    def __init__(self, generator: generate.Generator, name: str) -> None:
        self._generator, self._name = generator, name

    @property
    def name(self) -> str:
        """The name by which the generator was chosen."""
        return self._name

    def complete(self, messages: Sequence[Message], *, max_tokens: int, seed: int) -> str:
        """The text of the reply. Raises what the generator raises."""
        roles: dict[str, Any] = {"system": "system", "user": "user"}
        turns = tuple(Turn(roles[one["role"]], one["content"]) for one in messages)
        sampling = Sampling(max_tokens=max_tokens, seed=seed % _SEEDS)
        return self._generator.complete(Request(turns, sampling=sampling)).text


def choose_rewriter(name: str) -> Generator:
    """The generator of a build: `embedded`, the address of a server, `MODULE:FUNCTION` of an
    engine. Raises `UsageError` TW475 for `rules`, which answer no prompts, and as `choose` does."""
    if name == "embedded":
        return Embedded()
    if name == "rules":
        wrong = "the generator `rules` does not read the prompts of rephrasing"
        raise UsageError([Problem("TW475", "generator", wrong, "write `embedded`")])
    return Asking(choose(name), name)
