"""Dialogues of a user, a model and its tools, for inference, generation, synthesis, fine-tuning and
evaluation.

Call ids are as in Kimi K2's template (report, appendix B; `docs/tool_call_guidance.md` of its
repository): `functions.NAME:INDEX`, with the index from 0 over the whole dialogue.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Call:
    """A model's call of a tool; `arguments` as it wrote them, JSON or not."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a dialogue."""

    role: Role
    content: str = ""
    calls: tuple[Call, ...] = ()
    answers: str = ""
    """In a tool's message: the id of the call."""


@dataclass(frozen=True, slots=True)
class Dialog:
    """Messages, and the declared tools in OpenAI's form."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is; None for any other text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def call_id(name: str, index: int) -> str:
    """The id of call number `index`, from 0."""
    return f"functions.{name}:{index}"


def numbered(name: str, index: int, arguments: str) -> Call:
    """Call number `index` of a dialogue."""
    return Call(call_id(name, index), name, arguments)


def calls_of(messages: Sequence[Message]) -> int:
    """The number of calls: the index of the next call."""
    return sum(len(message.calls) for message in messages)


def texts_of(messages: Sequence[Message], role: Role) -> list[str]:
    """The texts of the messages of a role."""
    return [message.content for message in messages if message.role == role]


def declared(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A tool in OpenAI's `tools` and Kimi K2's template; `parameters` is a JSON schema."""
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def message_json(message: Message) -> dict[str, Any]:
    """A message in OpenAI's form."""
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        made["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.calls
        ]
    if message.answers:
        made["tool_call_id"] = message.answers
    return made


def message_of(row: Mapping[str, Any]) -> Message:
    """The message of a row of `message_json`. Raises KeyError, TypeError or AttributeError for any
    other row."""
    calls = tuple(
        Call(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in row.get("tool_calls") or ()
    )
    return Message(row["role"], row["content"] or "", calls, row.get("tool_call_id") or "")


def dialog_json(dialog: Dialog) -> dict[str, Any]:
    """A dialogue as one JSON object: `messages` and `tools` in OpenAI's form."""
    return {
        "messages": list(map(message_json, dialog.messages)),
        "tools": list(map(dict, dialog.tools)),
    }


def dialog_of(row: Mapping[str, Any]) -> Dialog:
    """The dialogue of a row of `dialog_json`. Raises as `message_of` does."""
    return Dialog(tuple(map(message_of, row["messages"])), tuple(row.get("tools") or ()))
