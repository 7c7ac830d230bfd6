"""Responses of one policy: the engine writes, environments answer, until all are over or the
iteration's tokens or steps are spent.

Time here is a count of the engine's steps (`reference.rl.environments`), so that the responses
follow from the seeds alone. A response is paused by forgetting its request: its tokens and the
state of its world are all that there is of it. When it goes on, it is computed again, under the
weights that the engine then has, and draws what it would have drawn: a draw depends on the
response's seed and the token's place in it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import cos, pi
from typing import Annotated, Literal

from pydantic import Field, Strict

from reference.agentic.environment import Verdict
from reference.inference.engine import Engine
from reference.inference.request import EngineRequest, Sampling, Update
from reference.rl.environments import (
    EnvironmentAnswer,
    EnvironmentJob,
    Environments,
    EnvironmentsSpec,
    FailedError,
    Mode,
    due,
    latency,
)
from reference.rl.records import (
    CUT,
    Ended,
    RepeatSpec,
    Response,
    answer_ids,
    ends_message,
    repeats,
    with_answer,
)
from twin.spec.base import Count, Flag, Part, Spec, Whole

Warmth = Annotated[float, Strict(), Field(ge=0.05, le=10)]
"""What logits are divided by."""


class TemperatureSpec(Spec):
    """The temperature of each iteration: high while the policy explores, lower later (Kimi K2,
    report, section 3.2.3, which gives no numbers: values and shape are OURS)."""

    first: Warmth = 1.0
    """Of the first iteration."""
    last: Warmth = 1.0
    """After `iterations`."""
    iterations: Whole = 0
    """Of the decay; 0: `first` in all."""
    shape: Literal["linear", "cosine"] = "linear"
    """Of the decay."""


def temperature_at(spec: TemperatureSpec, iteration: int) -> float:
    """The temperature of an iteration, counted from 0."""
    if not spec.iterations:
        return spec.first
    done = min(1.0, iteration / spec.iterations)
    left = 1 - done if spec.shape == "linear" else (1 + cos(pi * done)) / 2
    return spec.last + (spec.first - spec.last) * left


PauseReason = Literal["done", "spent", "slice"]
"""All responses are over; the iteration's tokens or steps are spent; a slice is over."""


class RolloutSpec(Spec):
    """How responses are written."""

    responses: Annotated[Count, Field(ge=2)] = 8
    """Responses to each prompt: the group that a reward is compared with."""
    tokens: Count | None = None
    """Tokens that an iteration writes; responses that are not over then wait for the next one.
    null: until all are over."""
    patience: Count | None = None
    """Steps of the engine, those included for which it stands still, after which an iteration's
    rollout ends and who is not over waits for the next; null: none."""
    slice: Whole = 256
    """Steps of the engine after which it begins anew from the records, so that a checkpoint may be
    written there; 0: only where an iteration's rollout ends."""
    steps: Count = 8
    """Messages of the assistant in a dialogue."""
    cap: Count = 256
    """Tokens that the model writes in a response."""
    caps: dict[str, Count] = Field(default_factory=dict)
    """The same for single kinds of tasks."""
    full: Flag = False
    """Responses go on to their cap: nothing that ends one earlier is drawn. For measuring, where
    lengths have to be known before."""
    repeat: RepeatSpec = RepeatSpec()
    """What is taken for going round in circles."""
    top_p: Annotated[Part, Field(gt=0)] = 1.0
    """Share of the probability that tokens are drawn from."""


class DivergedError(RuntimeError):
    """The policy's logits are not finite."""


@dataclass(slots=True)
class RolloutCounts:
    """Counts of a rollout."""

    steps: int = 0
    computed: int = 0
    """Tokens through the model, those that were computed again included."""
    written: int = 0
    answers: int = 0
    waited_s: float = 0.0
    """Seconds of waiting for environments while nothing else was done."""
    failures: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Rollout:
    """The engine, the environments, and the responses that wait for each."""

    engine: Engine
    environments: Environments
    spec: RolloutSpec
    latency: EnvironmentsSpec
    context: int
    """Tokens that a prompt and its response may have."""
    temperature: float = 1.0
    clock: int = 0
    """Steps of the engine so far, and those that it stood still for."""
    written: int = 0
    """Tokens of this iteration."""
    seen: RolloutCounts = field(default_factory=RolloutCounts)
    _writing: dict[int, Response] = field(default_factory=dict)
    """By number of the request."""
    _asking: dict[tuple[int, int], Response] = field(default_factory=dict)
    _tickets: dict[tuple[int, int], int] = field(default_factory=dict)
    """Of answers under way, also while their responses are paused."""

    def run(self, responses: Sequence[Response]) -> PauseReason:
        """Go on, for a slice at most; afterwards all responses are paused."""
        for response in sorted(responses, key=lambda response: response.key):
            if not response.finished:
                self._enter(response)
        began = self.clock
        try:
            while True:
                if not self._writing and not self._asking:
                    return "done"
                if self._spent():
                    return "spent"
                if self.spec.slice and self.clock - began >= self.spec.slice:
                    return "slice"
                self._step()
        finally:
            self._pause()

    def _spent(self) -> bool:
        tokens, patience = self.spec.tokens, self.spec.patience
        return (tokens is not None and self.written >= tokens) or (
            patience is not None and self.clock >= patience
        )

    def rest(self, responses: Sequence[Response]) -> None:
        """End an iteration: the next one counts anew, and the rest of an answer's time passes
        there."""
        for response in responses:
            response.due = max(0, response.due - self.clock)
        self.clock = self.written = 0

    def _enter(self, response: Response) -> None:
        if response.asks:
            self._asking[response.key] = response
            if response.key not in self._tickets:
                left = max(0, response.due - self.clock) * self.latency.step
                self._tickets[response.key] = self.environments.submit(self._job(response), left)
        else:
            self._write(response)

    def _write(self, response: Response) -> None:
        """Let the engine go on with a response, if it has room."""
        cap = self.spec.caps.get(response.kind, self.spec.cap)
        room = self._room(response)
        more = min(cap - response.written, room)
        if more < 1:
            self._end(response, "context" if room < 1 else "budget")
            return
        request = EngineRequest(
            response.prompt,
            len(response.tokens) + more,
            sampling=Sampling(self.temperature, self.spec.top_p, 0, response.seed),
            stop_tokens=ends_message(self.engine.vocabulary),
            min_tokens=len(response.tokens) + more if self.spec.full else 0,
        )
        number = self.engine.add(request)
        # The engine draws by the place behind the prompt, so that this changes no draw.
        (sequence,) = self.engine.live[number]
        sequence.tokens += response.tokens
        self._writing[number] = response

    def _step(self) -> None:
        ready = [response for response in self._asking.values() if response.due <= self.clock]
        for response in sorted(ready, key=lambda response: (response.due, response.key)):
            self._take(response)
        if self.engine.idle:
            if self._asking:
                first = min(response.due for response in self._asking.values())
                self.clock = max(self.clock, min(first, self.spec.patience or first))
            return
        before = self.engine.counts.computed_tokens
        for update in self.engine.step():
            self._add(self._writing[update.request], update)
        self.clock += 1
        self.seen.steps += 1
        self.seen.computed += self.engine.counts.computed_tokens - before

    def _add(self, response: Response, update: Update) -> None:
        if update.told is None:
            raise DivergedError
        response.write(update.told)
        self.written += 1
        self.seen.written += 1
        if update.finish is None:
            last = max(response.turn, len(response.tokens) - self.spec.repeat.window)
            if repeats(response.tokens[last:], self.spec.repeat):
                self.engine.cancel(update.request)
                del self._writing[update.request]
                self._end(response, "repeat")
            return
        del self._writing[update.request]
        if update.finish == "length":
            self._end(response, "context" if self._room(response) < 1 else "budget")
            return
        response.dialog = with_answer(self.engine.vocabulary, response)
        response.steps += 1
        if response.tokens[-1] == self.engine.vocabulary.end:
            response.ended = "document"
        elif response.steps == self.spec.steps:
            response.ended = "steps"
        self._ask(response)

    def _room(self, response: Response) -> int:
        """Tokens that the context has left for a response."""
        return self.context - len(response.prompt) - len(response.tokens)

    def _end(self, response: Response, ended: Ended) -> None:
        """End in the middle of a message; the world is judged as it stands."""
        if len(response.tokens) > response.turn:
            response.dialog = with_answer(self.engine.vocabulary, response)
        response.ended = ended
        self._ask(response)

    def _ask(self, response: Response) -> None:
        seconds = latency(self.latency, response.seed, response.steps)
        under_way = [other.due for other in self._asking.values()]
        response.asks, response.due = True, due(self.latency, seconds, self.clock, under_way)
        self._asking[response.key] = response
        self._tickets[response.key] = self.environments.submit(self._job(response), seconds)

    def _job(self, response: Response) -> EnvironmentJob:
        mode: Mode = "go_on"
        if response.ended is not None:
            mode = "judge" if response.ended in CUT else "last"
        return EnvironmentJob(response.task, response.state, response.dialog, mode)

    def _take(self, response: Response) -> None:
        began = time.perf_counter()
        try:
            done = self.environments.take(self._tickets.pop(response.key))
        except FailedError as error:
            self.seen.failures.append(f"{response.task}: {error}")
            done = EnvironmentAnswer(response.state, (), Verdict({}, ("failed",)))
            response.ended = "failed"
        self.seen.waited_s += time.perf_counter() - began
        self.seen.answers += 1
        del self._asking[response.key]
        response.asks, response.state = False, done.state
        messages = (*response.dialog.messages, *done.messages)
        response.dialog = replace(response.dialog, messages=messages)
        if done.verdict is not None:
            response.verdict = done.verdict
            if done.over and response.ended in (None, "steps"):
                response.ended = "over"
            return
        response.hear(answer_ids(self.engine.vocabulary, done.messages))
        self._write(response)

    def _pause(self) -> None:
        for number in list(self._writing):
            self.engine.cancel(number)
        self._writing.clear()
        self._asking.clear()
        self.engine.scheduler.forget()
