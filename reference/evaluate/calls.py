"""Whether a model's tool calls are valid: in the template's form, of a declared tool, with
arguments that are JSON and fit the tool's schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from reference.generate.request import Reply
from reference.sandbox.schema import errors_of
from reference.text.template import (
    ARGUMENTS,
    CALL,
    CALL_END,
    CALLS,
    END,
    Segment,
    segments_of,
)

Fault = Literal["form", "name", "json", "arguments"]
"""What is wrong with a call: not closed or without `functions.NAME:INDEX`; a tool that is not
declared; arguments that are no JSON object; arguments that do not fit the schema."""
_HEAD: Final = re.compile(r"functions\.(?P<name>[^:\s]+):\d+")


@dataclass(frozen=True, slots=True)
class Attempt:
    """A call as a model began it, whatever became of it."""

    name: str
    arguments: str
    formed: bool
    """Whether it is closed, and its head is `functions.NAME:INDEX`."""


def attempts(reply: Reply) -> list[Attempt]:
    """The calls that a reply begins. Without its raw text those that the server understood."""
    if reply.raw is None:
        return [Attempt(call.name, call.arguments, formed=True) for call in reply.calls]
    return attempts_in(segments_of(reply.raw))


def attempts_in(segments: Sequence[Segment]) -> list[Attempt]:
    """The calls that an answer begins; a section of calls without any is one without a form."""
    found: list[Attempt] = []
    inside, head, arguments = "", "", ""

    def done(*, closed: bool) -> None:
        match = _HEAD.fullmatch(head)
        name = match["name"] if match else head.strip()
        found.append(Attempt(name, arguments.strip(), closed and match is not None))

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
    return found


def fault_of(attempt: Attempt, tools: Sequence[Mapping[str, Any]]) -> Fault | None:
    """What is wrong with a call, the first that applies; None for a valid one."""
    if not attempt.formed:
        return "form"
    schemas = {one["function"]["name"]: one["function"].get("parameters", {}) for one in tools}
    if attempt.name not in schemas:
        return "name"
    try:
        arguments = json.loads(attempt.arguments)
    except (ValueError, RecursionError):
        return "json"
    if not isinstance(arguments, dict):
        return "json"
    schema = {"type": "object", **schemas[attempt.name]}
    return "arguments" if any(errors_of(arguments, schema)) else None
