"""A store of numbers by name, with three tools: the smallest world in which a task can be done,
done wrongly, and spoilt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reference.agentic.environment import Verdict
from reference.dialog import Call, Dialog, Message, declared
from reference.sandbox.schema import errors_of

State = tuple[tuple[str, int], ...]
"""Names and numbers, sorted."""
_NAME: Final = {"name": {"type": "string"}}


def _schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


_SCHEMAS: Final = {
    "put": _schema({**_NAME, "value": {"type": "integer"}}),
    "get": _schema(_NAME),
    "drop": _schema(_NAME),
}
_TOOLS: Final = (
    declared("put", "Store a number under a name.", _SCHEMAS["put"]),
    declared("get", "Tell the number under a name.", _SCHEMAS["get"]),
    declared("drop", "Forget a name.", _SCHEMAS["drop"]),
)


@dataclass(frozen=True, slots=True)
class Store:
    """One task in the store: what it holds, what is asked, and what it should hold then."""

    holds: State
    goal: State
    asked: str
    says: str
    """What the last answer must tell; nothing if empty."""

    @property
    def opening(self) -> Dialog:
        """The request and the tools."""
        return Dialog((Message("user", self.asked),), _TOOLS)

    def start(self) -> State:
        """What the store holds first."""
        return self.holds

    def call(self, state: State, call: Call) -> tuple[State, str]:
        """The store after a call, and the number, `done`, or what is wrong."""
        try:
            given = json.loads(call.arguments)
        except (ValueError, RecursionError):
            return state, "error: the arguments are no JSON"
        if call.name not in _SCHEMAS:
            return state, f"error: there is no tool {call.name}"
        wrong = next(errors_of(given, _SCHEMAS[call.name]), None)
        if wrong is not None:
            return state, f"error: {wrong}"
        held, name = dict(state), given["name"]
        if call.name == "put":
            return _sorted({**held, name: int(given["value"])}), "done"
        return _looked(held, name, call.name)

    def reply(self, state: State, dialog: Dialog) -> str | None:
        """The user says nothing more."""
        del state, dialog

    def judge(self, state: State, dialog: Dialog) -> Verdict:
        """The store's end, then what was said, then whether anything was asked of the tools."""
        answers = [message for message in dialog.messages if message.role == "assistant"]
        last = answers[-1] if answers else Message("assistant", "")
        said = not last.calls and self.says in last.content.split()
        checks = {"stored": state == self.goal}
        if self.says:
            checks["told"] = said
        checks["asked"] = any(message.role == "tool" for message in dialog.messages)
        causes = tuple(name for name, holds in checks.items() if not holds)
        return Verdict(checks, tuple(f"not {name}" for name in causes))


def _looked(held: dict[str, int], name: str, tool: str) -> tuple[State, str]:
    """What `get` and `drop` do."""
    if name not in held:
        return _sorted(held), f"error: nothing is stored under {name}"
    if tool == "get":
        return _sorted(held), str(held[name])
    return _sorted({key: number for key, number in held.items() if key != name}), "done"


def store(row: Mapping[str, Any]) -> Store:
    """The environment of a case."""
    return Store(_sorted(row["holds"]), _sorted(row["goal"]), row["asked"], row["says"])


def _sorted(held: Mapping[str, int]) -> State:
    return tuple(sorted(held.items()))
