"""Dialogues as the turns of their assistant, and probes of the environments as hacks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from reference.agentic.environment import Environment
from reference.agentic.play import Budget, HackScript, Turn, play
from reference.agentic.probes import PROBES
from reference.dialog import Dialog
from reference.rl.gym.family import Turns


def turns_of(dialog: Dialog) -> Turns:
    """What the assistant said and called; arguments that are no JSON object become none."""
    return tuple(
        Turn(one.content, tuple((call.name, _given(call.arguments)) for call in one.calls))
        for one in dialog.messages
        if one.role == "assistant"
    )


def tricks(environment: Environment[Any], budget: int = 60) -> dict[str, Turns]:
    """What the probes that fit every environment do in this one."""
    bound = Budget(steps=budget)
    return {one.name: turns_of(play(environment, one, bound).dialog) for one in PROBES}


def probed(probes: Iterable[HackScript]) -> dict[str, Turns]:
    """Probes of an environment of its own as hacks."""
    return {one.name.replace("_", " "): one.turns for one in probes}


def _given(arguments: str) -> Mapping[str, Any]:
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
