"""A world that tools act on: rows, the number of calls so far, and chance drawn from both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reference.agentic.chance import drawn
from reference.agentic.operation import operations
from reference.agentic.spec import ChanceSpec
from reference.agentic.tables import Refused, Tables
from reference.agentic.tools.spec import ToolSpec
from reference.dialog import Call
from reference.sandbox.schema import errors_of

ERROR: Final = "Error: "
PASSING: Final = "try again"
"""Stands in every error that passes, and in no other."""
_BUSY: Final = (
    "the service is busy, nothing was done, try again",
    "timeout after 30 s, nothing was done, try again",
    "connection reset before the request was read, try again",
)
_WARNINGS: Final = ("served by a replica", "this form of the answer is new", "clock skew of 2 s")


@dataclass(frozen=True, slots=True)
class World:
    """The state; `calls` counts all that were made, so that another try may do better."""

    tables: Tables
    calls: int = 0


def act(
    world: World, call: Call, tools: Mapping[str, ToolSpec], chance: ChanceSpec | None, seed: int
) -> tuple[World, str]:
    """The world after a call, and what is told of it. Without `chance` nothing fails by itself."""
    after = World(world.tables, world.calls + 1)
    try:
        tool, given = _understood(call, tools)
        luck = _luck(world, call, chance, seed)
        if luck == "transient":
            draw = drawn("busy", seed, world.calls, call.name)
            return after, f"{ERROR}{draw.choice(_BUSY)}"
        tables, result = operations()[tool.operation].run(world.tables, tool, given)
    except Refused as refusal:
        return after, f"{ERROR}{refusal}"
    if luck == "partial" and tool.effect == "read":
        result = _part(result)
    if luck == "edge":
        warning = drawn("edge", seed, world.calls).choice(_WARNINGS)
        result = {"warnings": [warning], "result": result}
    return World(tables, after.calls), written(result)


def written(result: Mapping[str, Any]) -> str:
    """A result as the model reads it."""
    return json.dumps(result, ensure_ascii=False, separators=(",", ":"))


def _understood(call: Call, tools: Mapping[str, ToolSpec]) -> tuple[ToolSpec, dict[str, Any]]:
    tool = tools.get(call.name)
    if tool is None:
        raise Refused(f"there is no tool {call.name}; there are: {', '.join(sorted(tools))}")
    try:
        given = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise Refused(f"the arguments are no JSON: {error}") from None
    # Terse declarations do not say that other arguments are refused; they are.
    wrong = list(errors_of(given, {**tool.parameters, "additionalProperties": False}))
    if wrong:
        raise Refused("; ".join(wrong[:5]))
    if tool.operation not in operations():
        raise Refused(f"{call.name} is not connected")
    return tool, given


def _luck(world: World, call: Call, chance: ChanceSpec | None, seed: int) -> str:
    if chance is None:
        return ""
    at = drawn("luck", seed, world.calls, call.name, call.arguments).random()
    for name in ("transient", "partial", "edge"):
        at -= getattr(chance, name)
        if at < 0:
            return name
    return ""


def _part(result: dict[str, Any]) -> dict[str, Any]:
    """The first half of a list, or of the values: said to be incomplete."""
    matches = result.get("matches")
    if isinstance(matches, list):
        kept: list[Any] = matches[: len(matches) // 2]
        return {**result, "matches": kept, "incomplete": True}
    names = list(result)[: max(1, len(result) // 2)]
    return {**{name: result[name] for name in names}, "incomplete": True}
