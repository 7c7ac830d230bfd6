"""How well a model uses tools: are its calls valid, and is the task done?

    result = tool_use(environments, generator, steps=16)
    result.validity, result.success        # intervals over environments; `.value` is the share
    result.opened                          # first answers with calls, all of them valid
    result.plays[0].verdict.causes

A call is valid when it is in the template's form, names a declared tool, and has JSON arguments
that fit the tool's schema. `validity` is over calls: None for a model that calls nothing;
`valid_turns` counts each dialogue without a call as one invalid call.

All dialogues go a turn at a time: a model in this process computes them together, and its answers
follow from the environments and the seed alone. (`reference.agentic.environment` plays one at a
time, whoever is free next, and keeps neither failed calls nor tokens.) The budget is the same:
answers of the model, calls and the user's later turns, together.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from reference.agentic.environment import Course, Environment, Verdict
from reference.dialog import Dialog, json_object
from reference.evaluate.statistics import Interval, grouped, share
from reference.generate.request import ChatRequest, Generator, Reply, Sampling, complete_many
from reference.sandbox.schema import errors_of
from reference.text.template import ARGUMENTS, CALL, CALL_END, CALLS, END, Segment, segments_of
from twin.errors import TwinError

Fault = Literal["form", "name", "json", "arguments"]
"""What is wrong with a call: not closed or without `functions.NAME:INDEX`; a tool that is not
declared; arguments that are no JSON object; arguments that do not fit the schema."""
_HEAD: Final = re.compile(r"functions\.(?P<name>[^:\s]+):\d+")


@dataclass(frozen=True, slots=True)
class CallAttempt:
    """A call as a model began it, valid or not."""

    name: str
    arguments: str
    formed: bool
    """Whether it is closed, and its head is `functions.NAME:INDEX`."""


def attempts(reply: Reply) -> list[CallAttempt]:
    """The calls that a reply begins; without its raw text, those that the server understood."""
    if reply.raw is None:
        return [CallAttempt(call.name, call.arguments, formed=True) for call in reply.calls]
    return attempts_in(segments_of(reply.raw))


def attempts_in(segments: Sequence[Segment]) -> list[CallAttempt]:
    """The calls that an answer begins; a section of calls without any is one without a form."""
    calls: list[CallAttempt] = []
    inside, head, arguments = "", "", ""

    def done(*, closed: bool) -> None:
        match = _HEAD.fullmatch(head)
        name = match["name"] if match else head.strip()
        calls.append(CallAttempt(name, arguments.strip(), closed and match is not None))

    for text, marker in [*segments, Segment(END, marker=True)]:
        if not marker:
            head += text if inside in (CALL, CALLS) else ""
            arguments += text if inside == ARGUMENTS else ""
            continue
        goes_on = (inside == CALL and text == ARGUMENTS) or (inside == CALLS and text == CALL)
        if inside in (CALL, ARGUMENTS, CALLS) and not goes_on:
            done(closed=inside == ARGUMENTS and text == CALL_END)
        if text in (CALL, CALLS):
            head, arguments = "", ""
        inside = text
        if text == END:
            break
    return calls


def fault_of(attempt: CallAttempt, tools: Sequence[Mapping[str, Any]]) -> Fault | None:
    """What is wrong with a call, the first that applies; None for a valid one."""
    if not attempt.formed:
        return "form"
    functions = [tool["function"] for tool in tools]
    schemas = {each["name"]: each.get("parameters", {}) for each in functions}
    if attempt.name not in schemas:
        return "name"
    arguments = json_object(attempt.arguments)
    if arguments is None:
        return "json"
    schema = {"type": "object", **schemas[attempt.name]}
    return "arguments" if any(errors_of(arguments, schema)) else None


Ended = Literal["over", "steps", "context"]
"""The user ended it; the model had no step left; the dialogue was too long for it."""
_GREEDY: Final = Sampling(temperature=0.0, max_tokens=256)


@dataclass(frozen=True, slots=True)
class ToolDialogue:
    """A dialogue that is over."""

    dialog: Dialog
    verdict: Verdict
    ended: Ended
    faults: tuple[Fault | None, ...]
    """The fault of each call that was begun; None for a valid one."""
    opened: bool
    """Whether the first answer makes calls, all of them valid."""
    steps: int
    """Steps of the budget that were used."""
    cut: int
    """Answers that were cut by the bound on their tokens."""
    prompt_tokens: int | None
    """Read by the model, over all steps; None where the generator does not say."""
    reply_tokens: int | None
    """Written by the model, over all steps."""


@dataclass(slots=True)
class _OpenDialogue(Course[Any]):
    """A dialogue that goes on."""

    seed: int
    left: int
    """Steps left of the budget."""
    faults: list[Fault | None] = field(default_factory=list)
    first: list[Fault | None] | None = None
    replies: list[Reply] = field(default_factory=list)
    ended: Ended | None = None

    def turn_seed(self) -> int:
        """The seed of the next answer."""
        text = f"{self.seed}/{len(self.replies)}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=3).digest(), "big")

    def take(self, reply: Reply | TwinError) -> None:
        """Go on behind an answer: do its calls, or hear the user. Raises the error in the place of
        an answer, other than for a dialogue that is too long."""
        if isinstance(reply, TwinError):
            if reply.problems[0].code != "TW552":
                raise reply
            self.ended = "context"
            return
        self.replies.append(reply)
        self.left -= 1
        tools = self.dialog.tools
        faults: list[Fault | None] = [fault_of(attempt, tools) for attempt in attempts(reply)]
        self.faults += faults
        self.first = faults if self.first is None else self.first
        self.say(reply.message())
        if self.hear(self.left):
            self.ended = "over"
            return
        self.left -= len(reply.calls) or 1
        if self.left <= 0:
            self.ended = "steps"

    def closed(self, steps: int) -> ToolDialogue:
        """The dialogue at its end."""
        first, tokens = self.first or [], [reply.tokens for reply in self.replies]
        return ToolDialogue(
            self.dialog,
            self.environment.judge(self.state, self.dialog),
            self.ended or "steps",
            tuple(self.faults),
            bool(first) and not any(first),
            steps - self.left,
            sum(reply.finish == "length" for reply in self.replies),
            _sum([count.prompt for count in tokens]),
            _sum([count.reply for count in tokens]),
        )


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Results of dialogues with tools. Intervals are clustered by environment."""

    plays: tuple[ToolDialogue, ...]

    @property
    def success(self) -> Interval:
        """Share of environments whose end state is right."""
        return self._share(lambda play: play.verdict.success)

    @property
    def validity(self) -> Interval | None:
        """Share of valid calls; None without any call."""
        return self._validity()[0]

    @property
    def valid_turns(self) -> Interval:
        """Share of valid calls, where each dialogue without a call counts as an invalid one."""
        return self._validity()[1]

    @property
    def opened(self) -> Interval:
        """Share of first answers that make calls, all of them valid."""
        return self._share(lambda play: play.opened)

    @property
    def faults(self) -> dict[Fault, int]:
        """Invalid calls by their fault."""
        return dict(Counter(fault for play in self.plays for fault in play.faults if fault))

    @property
    def causes(self) -> dict[str, int]:
        """Causes of failed tasks, as the environments name them."""
        return dict(Counter(cause for play in self.plays for cause in play.verdict.causes))

    @property
    def calls(self) -> int:
        """Calls that were begun."""
        return sum(len(play.faults) for play in self.plays)

    def _share(self, held: Callable[[ToolDialogue], bool]) -> Interval:
        pairs = ((str(at), float(held(play))) for at, play in enumerate(self.plays))
        return share(grouped(pairs))

    def _validity(self) -> tuple[Interval | None, Interval]:
        return call_validity((str(at), play.faults) for at, play in enumerate(self.plays))


def call_validity(
    faults: Iterable[tuple[str, Sequence[Fault | None]]],
) -> tuple[Interval | None, Interval]:
    """`validity` and `valid_turns` of the faults of dialogues by group."""
    calls: list[tuple[str, float]] = []
    turns: list[tuple[str, float]] = []
    for group, dialogue in faults:
        own = [(group, float(fault is None)) for fault in dialogue]
        calls += own
        turns += own or [(group, 0.0)]
    return share(grouped(calls)) if calls else None, share(grouped(turns))


def tool_use(
    environments: Sequence[Environment[Any]],
    generator: Generator,
    *,
    steps: int = 16,
    sampling: Sampling = _GREEDY,
    at_once: int = 8,
    metadata: Mapping[str, Any] | None = None,
) -> ToolUse:
    """Plays every environment once and judges end states. `steps` is the budget of a dialogue:
    answers of the model, calls and the user's later turns, together. Each dialogue has a seed of
    its own, from the sampling's and its place. `metadata` and the environment's `hints` guide the
    embedded rules; no model sees them. Raises the generator's errors, other than TW552: a dialogue
    that grows too long ends there and is judged as it stands."""
    dialogues = [
        _OpenDialogue(each, each.start(), each.opening, sampling.seed * 100_003 + at, steps)
        for at, each in enumerate(environments)
    ]
    while open_ := [each for each in dialogues if each.ended is None]:
        requests = [
            ChatRequest(
                each.dialog.messages,
                each.dialog.tools,
                sampling.model_copy(update={"seed": each.turn_seed()}),
                {**(getattr(each.environment, "hints", None) or {}), **(metadata or {})},
            )
            for each in open_
        ]
        for each, reply in zip(open_, _replies(generator, requests, at_once), strict=True):
            each.take(reply)
    return ToolUse(tuple(each.closed(steps) for each in dialogues))


def _replies(
    generator: Generator, requests: Sequence[ChatRequest], at_once: int
) -> list[Reply | TwinError]:
    """Replies in order; by `complete_all`, which computes them together, where there is one."""
    together: Callable[[Sequence[ChatRequest]], list[Reply | TwinError]] | None
    together = getattr(generator, "complete_all", None)
    return together(requests) if together else complete_many(generator, requests, at_once)
