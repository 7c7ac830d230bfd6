"""A dialogue of a user, a model and its tools: the nouns of inference, generation, synthesis,
fine-tuning and evaluation.

Calls are named as in Kimi K2's template (report, appendix B; `docs/tool_call_guidance.md` of its
repository): `functions.NAME:INDEX`, the index counting from 0 over the whole dialogue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Call:
    """What a model asks a tool; `arguments` as it wrote them, JSON or not."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a dialogue."""

    role: Role
    content: str = ""
    calls: tuple[Call, ...] = ()
    answers: str = ""
    """Of a tool's message: the id of the call."""


@dataclass(frozen=True, slots=True)
class Dialog:
    """Messages, and the tools that they may call, as OpenAI declares them."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()


def call_id(name: str, index: int) -> str:
    """The id of a dialogue's call number `index`, from 0."""
    return f"functions.{name}:{index}"


def numbered(name: str, index: int, arguments: str) -> Call:
    """The dialogue's call number `index`."""
    return Call(call_id(name, index), name, arguments)


def calls_of(messages: Sequence[Message]) -> int:
    """How many calls a dialogue holds: the index of the next one."""
    return sum(len(message.calls) for message in messages)


def declared(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as OpenAI's `tools` and Kimi K2's template have it; `parameters` is a JSON schema."""
    said = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": said}


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
    """The message that `message_json` made this of. Raises KeyError, TypeError or AttributeError
    for what is none."""
    calls = tuple(
        Call(one["id"], one["function"]["name"], one["function"]["arguments"])
        for one in row.get("tool_calls") or ()
    )
    return Message(row["role"], row["content"] or "", calls, row.get("tool_call_id") or "")


def dialog_json(dialog: Dialog) -> dict[str, Any]:
    """A dialogue as one JSON object: `messages` and `tools` in OpenAI's form."""
    messages = [message_json(one) for one in dialog.messages]
    return {"messages": messages, "tools": [dict(one) for one in dialog.tools]}


def dialog_of(row: Mapping[str, Any]) -> Dialog:
    """The dialogue that `dialog_json` made this of. Raises as `message_of` does."""
    messages = tuple(message_of(one) for one in row["messages"])
    return Dialog(messages, tuple(row.get("tools") or ()))
