"""Dialogues of a model with environments, all of them a turn at a time: a model in this process
computes them together, and what it answers follows from the environments and the seed alone.

(`reference.agentic.play` plays one at a time, whoever is free next; it keeps no calls that failed
to be any, and no tokens.) The budget is the same: answers of the model, calls and the user's later
turns, together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from reference.agentic.environment import Environment, Verdict
from reference.agentic.play import Course
from reference.dialog import Dialog
from reference.evaluate.calls import Fault, attempts, fault_of
from reference.generate.generator import Generator, complete_many
from reference.generate.request import Reply, Request, Sampling
from twin.errors import TwinError

Ended = Literal["over", "steps", "context"]
"""The user ended it; the model had no step left; the dialogue was too long for it."""


@dataclass(frozen=True, slots=True)
class Play:
    """A dialogue that is over."""

    dialog: Dialog
    verdict: Verdict
    ended: Ended
    faults: tuple[Fault | None, ...]
    """Of each call that was begun what is wrong with it; None for a valid one."""
    opened: bool
    """Whether the first answer makes a call, and every call of it is valid."""
    steps: int
    """Of the budget that were used."""
    cut: int
    """Answers that the bound on their tokens ended."""
    prompt_tokens: int | None
    """Read by the model, over all steps; None where the generator does not say."""
    reply_tokens: int | None
    """Written by the model, over all steps."""


@dataclass(slots=True)
class _Open(Course[Any]):
    """A dialogue that goes on."""

    seed: int
    left: int
    """Steps of the budget."""
    faults: list[Fault | None] = field(default_factory=list)
    first: list[Fault | None] | None = None
    replies: list[Reply] = field(default_factory=list)
    ended: Ended | None = None


def play_all(
    environments: Sequence[Environment[Any]],
    generator: Generator,
    steps: int,
    sampling: Sampling,
    at_once: int = 8,
    metadata: Mapping[str, Any] | None = None,
) -> list[Play]:
    """The dialogues, in order, each of at most so many steps. Each has a seed of its own, from the
    sampling's and its place, and goes by `metadata` and the environment's `hints`, where it has
    some: rules read them, no model is told. Raises the generator's first error, other than for a
    dialogue that is too long."""
    all_ = [
        _Open(one, one.start(), one.opening, sampling.seed * 100_003 + at, steps)
        for at, one in enumerate(environments)
    ]
    while going := [one for one in all_ if one.ended is None]:
        requests = [
            Request(
                one.dialog.messages,
                one.dialog.tools,
                sampling.model_copy(update={"seed": _seed(one)}),
                {**(getattr(one.environment, "hints", None) or {}), **(metadata or {})},
            )
            for one in going
        ]
        for one, reply in zip(going, replies(generator, requests, at_once), strict=True):
            _take(one, reply)
            if one.ended is None and one.left <= 0:
                one.ended = "steps"
    return [_closed(one, steps) for one in all_]


def replies(
    generator: Generator, requests: Sequence[Request], at_once: int
) -> list[Reply | TwinError]:
    """Replies in order; by `complete_all`, which depends on nothing else, where there is one."""
    together: Callable[[Sequence[Request]], list[Reply | TwinError]] | None
    together = getattr(generator, "complete_all", None)
    return together(requests) if together else complete_many(generator, requests, at_once)


def _seed(one: _Open) -> int:
    text = f"{one.seed}/{len(one.replies)}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=3).digest(), "big")


def _take(one: _Open, reply: Reply | TwinError) -> None:
    """The dialogue after an answer: its calls done, or the user's next words."""
    if isinstance(reply, TwinError):
        if reply.problems[0].code != "TW552":
            raise reply
        one.ended = "context"
        return
    one.replies.append(reply)
    one.left -= 1
    tools = one.dialog.tools
    found: list[Fault | None] = [fault_of(attempt, tools) for attempt in attempts(reply)]
    one.faults += found
    one.first = found if one.first is None else one.first
    one.say(reply.message())
    if one.hear(one.left):
        one.ended = "over"
    else:
        one.left -= len(reply.calls) or 1


def _closed(one: _Open, steps: int) -> Play:
    first = one.first or []
    tokens = [reply.tokens for reply in one.replies]
    return Play(
        one.dialog,
        one.environment.judge(one.state, one.dialog),
        one.ended or "steps",
        tuple(one.faults),
        bool(first) and not any(first),
        steps - one.left,
        sum(reply.finish == "length" for reply in one.replies),
        _sum(found.prompt for found in tokens),
        _sum(found.reply for found in tokens),
    )


def _sum(counts: Any) -> int | None:
    found = list(counts)
    return None if any(one is None for one in found) else sum(found)
