"""Two answers under one rubric: asked in both orders, so that a taste for the first or the second
place gains nobody anything.

A critic tells how likely the first answer is the better one. If the log-odds of that are what the
answers differ by plus a taste for the place (Bradley-Terry with an effect of order, Davidson and
Beaver 1977, doi:10.2307/2529740), then half the difference of both orders is free of the taste,
however strong. Who only names an answer has odds of all or nothing: orders that differ are a tie.

An answer is quoted as a JSON string, so that it cannot pretend to be the other, or the question.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
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
Critic = Callable[[Sequence[Dialog]], Sequence[float]]
"""Of each of some questions how likely the first answer is the better one, 0 to 1; one half where
nothing is known."""


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
    """For each pair how likely the one answer is the better one, without the taste for a place; one
    half for equal answers, which nobody is asked about."""
    differ = [pair for pair in pairs if pair.one != pair.other]
    asked = [dialog_of(pair, swapped=swapped) for pair in differ for swapped in (False, True)]
    said = critic(asked) if asked else []
    found = iter(_both(said[at], 1 - said[at + 1]) for at in range(0, len(said), 2))
    return [next(found) if pair.one != pair.other else 0.5 for pair in pairs]


def _both(one: float, swapped: float) -> float:
    """What has the mean of two log-odds; sure in both ways is a tie."""
    for_it, against = sqrt(one * swapped), sqrt((1 - one) * (1 - swapped))
    return for_it / (for_it + against) if for_it + against else 0.5


def _won(text: str) -> float:
    """What the first answer wins by a reply; what names neither is a tie."""
    named = None if _PROSE.match(text) else _SAID.fullmatch(text)
    return 0.5 if named is None else float(named[1] == FIRST)


def by_generator(generator: Generator, at_once: int = 8) -> Critic:
    """A generator as a critic, which names an answer. Raises the generator's errors."""

    def ask(dialogs: Sequence[Dialog]) -> list[float]:
        sampling = Sampling(temperature=0.0, max_tokens=4)
        requests = [
            Request(one.messages, one.tools, sampling, {"kind": "compare"}) for one in dialogs
        ]
        return [_won(_text(one)) for one in complete_many(generator, requests, at_once)]

    return ask


def _text(reply: object) -> str:
    if isinstance(reply, TwinError):
        raise reply
    return getattr(reply, "text", "")
