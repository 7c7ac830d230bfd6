"""Self-critique in a run's configuration.

What a critic holds answers to: rubrics as data.

Two answers under one rubric: asked in both orders, so that a taste for the first or the second
place gains nobody anything.

A critic tells how likely the first answer is the better one. If the log-odds of that are what the
answers differ by plus a taste for the place (Bradley-Terry with an effect of order, Davidson and
Beaver 1977, doi:10.2307/2529740), then half the difference of both orders is free of the taste,
however strong. Who only names an answer has odds of all or nothing: orders that differ are a tie.

An answer is quoted as a JSON string, so that it cannot pretend to be the other, or the question.

All answers to a question against each other: the share of pairs that each wins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, Strict

from reference.dialog import Dialog, Message
from reference.generate.generator import Generator, complete_many
from reference.generate.request import Request, Sampling
from twin.errors import Problem, TwinError, UsageError
from twin.loading.config import load_config
from twin.loading.suggest import hint
from twin.spec.base import Count, DocumentedSpec, Flag, Whole


class CritiqueSpec(DocumentedSpec):
    """Who ranks the responses to prompts that cannot be verified, and how it is learned."""

    critic: str = "self"
    """self: the policy's own engine; else a generator: the address of a server, or the folder of a
    run."""
    rubrics: Annotated[tuple[str, ...], Field(min_length=1)] = ("core", "prescriptive")
    """Built-in files of rubrics, or files of one's own."""
    kinds: tuple[str, ...] = ()
    """Kinds of tasks that are ranked, none of which may be verifiable; empty: all that are not."""
    weight: Annotated[float, Strict(), Field(ge=0, le=1e3)] = 0.0
    """Closed loop, of critic `self`: of the mean cross-entropy on comparisons whose outcome the
    iteration's verifiable responses tell, beside the objective; 0: none. OURS."""
    pairs: Count = 8
    """Such comparisons of a step, at most."""
    check: Whole = 0
    """Such comparisons of an iteration that the critic is asked about before it learns from them:
    the metric `agreement`; 0: none."""


FOLDER: Final = Path(__file__).with_name("rubrics")


class Rubric(DocumentedSpec):
    """One thing that answers are compared by."""

    name: str
    """Of its own among all."""
    asks: str
    """What a better answer does, one sentence."""
    weight: Annotated[float, Strict(), Field(ge=0, le=100)] = 1.0
    """What it counts beside the others."""
    mandatory: Flag = False
    """Who loses it for sure, in both orders, loses the pair, whatever else."""


class RubricsSpec(DocumentedSpec):
    """A file of rubrics."""

    rubrics: Annotated[tuple[Rubric, ...], Field(min_length=1)]
    """In order."""


def names() -> list[str]:
    """The built-in files."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def rubrics(file: str) -> tuple[Rubric, ...]:
    """The rubrics of a built-in file, by name, or of a file of one's own. Raises UsageError TW652
    where there is none."""
    path = Path(file) if Path(file).is_file() else FOLDER / f"{file}.yaml"
    if not path.is_file():
        fix = hint(file, names(), "or name a YAML file")
        raise UsageError([Problem("TW652", "critique.rubrics", f"no rubrics `{file}`", fix)])
    return load_config(RubricsSpec, path).rubrics


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


SURE: Final = 0.9
"""A mandatory rubric decides a pair from this share on. OURS: the report's rubrics are prose."""


def win_rates(
    critic: Critic, question: str, answers: Sequence[str], rubrics: Sequence[Rubric]
) -> list[float]:
    """For each answer the mean over the others of what it wins against them, 0 to 1; their mean is
    one half. Empty answers lose to others, unasked. OURS: the report says no scalar."""
    places = list(combinations(range(len(answers)), 2))
    asked = [pair for pair in places if answers[pair[0]].strip() and answers[pair[1]].strip()]
    pairs = [
        Pair(question, answers[one], answers[other], rubric)
        for one, other in asked
        for rubric in rubrics
    ]
    said, each = outcomes(critic, pairs), len(rubrics)
    known = {
        pair: combined(rubrics, said[at * each : (at + 1) * each]) for at, pair in enumerate(asked)
    }
    won = [0.0] * len(answers)
    for one, other in places:
        share = known.get((one, other), _unasked(answers[one], answers[other]))
        won[one] += share
        won[other] += 1 - share
    return [one / max(1, len(answers) - 1) for one in won]


def combined(rubrics: Sequence[Rubric], said: Sequence[float]) -> float:
    """What an answer wins by outcomes under several rubrics: their weighted mean, unless mandatory
    ones are lost or won for sure, all one way."""
    must = [one for rubric, one in zip(rubrics, said, strict=True) if rubric.mandatory]
    won, lost = any(one >= SURE for one in must), any(one <= 1 - SURE for one in must)
    if won != lost:
        return float(won)
    total = sum(rubric.weight for rubric in rubrics)
    weighed = sum(rubric.weight * one for rubric, one in zip(rubrics, said, strict=True))
    return weighed / total if total else 0.5


def with_weights(rubrics: Sequence[Rubric], weights: Mapping[str, float]) -> tuple[Rubric, ...]:
    """The rubrics with other weights, by name."""
    return tuple(
        one.model_copy(update={"weight": weights.get(one.name, one.weight)}) for one in rubrics
    )


def _unasked(one: str, other: str) -> float:
    return 0.5 if bool(one.strip()) == bool(other.strip()) else float(bool(one.strip()))
