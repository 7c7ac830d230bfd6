"""Two answers under one rubric: asked in both orders, so that a taste for the first or the second
place gains nobody anything.

An answer is quoted as a JSON string, so that it cannot pretend to be the other, or the question.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from reference.dialog import Dialog, Message
from reference.generate.generator import Generator, complete_many
from reference.generate.request import Request, Sampling
from reference.rl.critique.rubric import Rubric
from twin.errors import TwinError

FIRST, SECOND = "A", "B"
"""What a critic says."""
_SAID: Final = re.compile(rf"\W*([{FIRST}{SECOND}])(?:\W.*)?", re.DOTALL)
_PROSE: Final = re.compile(r"\W*A [a-z]")
Critic = Callable[[Sequence[Dialog]], Sequence[str]]
"""What is said to each of some dialogues that end with a question."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to a question, and what they are compared by."""

    question: str
    one: str
    other: str
    rubric: Rubric


def dialog_of(pair: Pair, *, swapped: bool) -> Dialog:
    """What the critic is asked; `swapped` has the other answer first."""
    first, second = (pair.other, pair.one) if swapped else (pair.one, pair.other)
    lines = (
        f"Which is better, {FIRST} or {SECOND}? {pair.rubric.asks}",
        json.dumps(pair.question, ensure_ascii=False),
        f"{FIRST}: {json.dumps(first, ensure_ascii=False)}",
        f"{SECOND}: {json.dumps(second, ensure_ascii=False)}",
    )
    return Dialog((Message("user", "\n".join(lines)),))


def outcomes(critic: Critic, pairs: Sequence[Pair]) -> list[float]:
    """For each pair what the one answer wins: the mean of both orders, 1 won in both, 0 lost in
    both, between where they differ. What names neither answer is a tie, as are equal answers."""
    differ = [pair for pair in pairs if pair.one != pair.other]
    asked = [dialog_of(pair, swapped=swapped) for pair in differ for swapped in (False, True)]
    said = [_won(text) for text in critic(asked)] if asked else []
    found = iter((said[at] + 1 - said[at + 1]) / 2 for at in range(0, len(said), 2))
    return [next(found) if pair.one != pair.other else 0.5 for pair in pairs]


def _won(text: str) -> float:
    """What the first answer wins by a reply."""
    named = None if _PROSE.match(text) else _SAID.fullmatch(text)
    return 0.5 if named is None else float(named[1] == FIRST)


def by_generator(generator: Generator, at_once: int = 8) -> Critic:
    """A generator as a critic. Raises the generator's errors."""

    def ask(dialogs: Sequence[Dialog]) -> list[str]:
        sampling = Sampling(temperature=0.0, max_tokens=4)
        requests = [
            Request(one.messages, one.tools, sampling, {"kind": "compare"}) for one in dialogs
        ]
        return [_text(one) for one in complete_many(generator, requests, at_once)]

    return ask


def _text(reply: object) -> str:
    if isinstance(reply, TwinError):
        raise reply
    return getattr(reply, "text", "")
