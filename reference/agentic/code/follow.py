"""A dialogue whose assistant's turns are written beforehand: probes, replays, gold solutions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from reference.agentic.environment import Environment, Verdict
from reference.dialog import Dialog, Message, calls_of, numbered

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Turn:
    """What the assistant says, and the tools it calls: names and arguments."""

    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Probe:
    """A trajectory that must fail, under the name of the hack that it tries."""

    name: str
    turns: tuple[Turn, ...]


def follow(environment: Environment[State], turns: Sequence[Turn]) -> tuple[State, Dialog]:
    """The world and the dialogue after these turns; the user's replies stand between them."""
    state, dialog = environment.start(), environment.opening
    for turn in turns:
        first = calls_of(dialog.messages)
        calls = tuple(
            numbered(name, first + at, json.dumps(dict(given)))
            for at, (name, given) in enumerate(turn.calls)
        )
        dialog = _with(dialog, Message("assistant", turn.text, calls))
        for call in calls:
            state, told = environment.call(state, call)
            dialog = _with(dialog, Message("tool", told, answers=call.id))
        said = None if calls else environment.reply(state, dialog)
        if not calls and said is None:
            break
        if said is not None and turn is not turns[-1]:
            dialog = _with(dialog, Message("user", said))
    return state, dialog


def judged(environment: Environment[State], turns: Sequence[Turn]) -> Verdict:
    """The verdict on these turns."""
    return environment.judge(*follow(environment, turns))


def _with(dialog: Dialog, message: Message) -> Dialog:
    return replace(dialog, messages=(*dialog.messages, message))
