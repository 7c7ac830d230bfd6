"""An engine that writes what a plan says, a token per step, whatever it was asked before: rollouts
of many turns without a model that has learned to call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from reference.dialog import Call, Dialog, Message, call_id
from reference.inference.engine import EngineCounts
from reference.inference.request import EngineRequest, GeneratedToken, Update
from reference.text.template import CALL, Weighed, render, weighed
from tests.reference.inference.small import VOCABULARY

Plan = Callable[[int, int], Message]
"""The message of a response, by its seed, and how many it has said before."""


def ids_of(message: Message, calls: int = 0) -> list[int]:
    """What a model writes for a message, its end included."""
    before = tuple(
        Message("assistant", calls=(Call(call_id("x", at), "x", "{}"),)) for at in range(calls)
    )
    parts: list[Weighed] = weighed(Dialog((*before, message)))
    last = weighed(Dialog(before))
    written = [one.segment for one in parts[len(last) :] if one.learned]
    return VOCABULARY.ids(written)


@dataclass(eq=False)
class Line:
    """A request in line."""

    request: EngineRequest
    number: int
    tokens: list[int]
    rest: Iterator[int] | None = None


OPENING = VOCABULARY.ids(render(Dialog(()), ask=True))
"""Of an assistant's message."""


@dataclass
class Scripted:
    """As much of an engine as a rollout uses."""

    plan: Plan
    weights: int = 0
    drawn: int = 0
    """Tokens so far."""
    most: int = 0
    """Requests in line at once."""
    live: dict[int, list[Line]] = field(default_factory=dict)
    counts: EngineCounts = field(default_factory=EngineCounts)
    vocabulary: Any = VOCABULARY
    numbers: int = 0

    @property
    def scheduler(self) -> Any:
        return self

    @property
    def idle(self) -> bool:
        return not self.live

    def forget(self) -> None:
        assert not self.live

    def add(self, request: EngineRequest) -> int:
        self.numbers += 1
        self.live[self.numbers] = [Line(request, self.numbers, list(request.prompt))]
        self.most = max(self.most, len(self.live))
        return self.numbers

    def cancel(self, number: int) -> None:
        self.live.pop(number, None)

    def step(self) -> list[Update]:
        return [self._draw(line) for (line,) in list(self.live.values())]

    def _draw(self, line: Line) -> Update:
        if line.rest is None:
            line.rest = self._rest(line.tokens, line.request.sampling.seed)
        token = next(line.rest)
        line.tokens.append(token)
        self.drawn += 1
        told = GeneratedToken(token, -1.0, -0.5, (), self.weights)
        finish = None
        if token in line.request.stop_tokens or token == VOCABULARY.end:
            finish = "stop"
        elif len(line.tokens) - len(line.request.prompt) == line.request.max_tokens:
            finish = "length"
        if finish is not None:
            del self.live[line.number]
        return Update(line.number, 0, told, "", finish)

    def _rest(self, ids: list[int], seed: int) -> Iterator[int]:
        """What the plan says behind the tokens so far."""
        size = len(OPENING)
        places = [at for at in range(len(ids) - size + 1) if ids[at : at + size] == OPENING]
        written = ids[places[-1] + size :]
        begun = ids[: places[-1]].count(VOCABULARY.markers[CALL])
        return iter(ids_of(self.plan(seed, len(places) - 1), begun)[len(written) :])
