"""A dialogue's calls made again in a fresh world: what a forged dialogue cannot stand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from reference.agentic.environment import Environment
from reference.dialog import Call, Dialog, Message


@dataclass(frozen=True, slots=True)
class Made:
    """A call, and what the world said to it."""

    call: Call
    told: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """A dialogue played again."""

    state: Any
    made: tuple[Made, ...]
    unequal: tuple[str, ...]
    """Results that the world does not give, by the id of the call."""
    malformed: tuple[str, ...]
    """What is no dialogue of the template, in words."""


def replay(environment: Environment[Any], dialog: Dialog) -> Replayed:
    """The calls of the dialogue on the environment's first state, each result compared byte for
    byte."""
    state = environment.start()
    made: list[Made] = []
    unequal: list[str] = []
    malformed = _opening_faults(environment.opening, dialog)
    waiting: list[Call] = []
    for message in dialog.messages:
        if message.role == "tool":
            if not waiting or waiting[0].id != message.answers:
                malformed.append(f"a result answers {message.answers or 'nothing'}")
                continue
            call = waiting.pop(0)
            state, told = environment.call(state, call)
            made.append(Made(call, told))
            if told != message.content:
                unequal.append(call.id)
            continue
        if waiting:
            malformed.append(f"{waiting[0].id} has no result")
            waiting = []
        if message.role == "assistant":
            malformed += _call_faults(message, len(made))
            waiting = list(message.calls)
    if waiting:
        malformed.append(f"{waiting[0].id} has no result")
    return Replayed(state, tuple(made), tuple(unequal), tuple(malformed))


def _opening_faults(opening: Dialog, dialog: Dialog) -> list[str]:
    begun = dialog.messages[: len(opening.messages)]
    same = begun == opening.messages and list(dialog.tools) == list(opening.tools)
    return [] if same else ["it does not begin as the task does"]


def _call_faults(message: Message, first: int) -> list[str]:
    found: list[str] = []
    for at, call in enumerate(message.calls, first):
        if call.id != f"functions.{call.name}:{at}":
            found.append(f"the call number {at} has the id {call.id}")
        if not isinstance(_json(call.arguments), dict):
            found.append(f"the arguments of {call.id} are no JSON object")
    return found


def _json(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
