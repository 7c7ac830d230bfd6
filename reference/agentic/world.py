"""The world of a synthetic task: rows, the number of calls, and random events drawn from both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reference.agentic.chance import drawn
from reference.agentic.domain import Refused, Tables, table
from reference.agentic.operations.base import ToolSpec, operations
from reference.agentic.spec import ChanceSpec
from reference.dialog import Call
from reference.sandbox.schema import read_arguments

ERROR: Final = "Error: "
PASSING: Final = "try again"
"""Part of every temporary error, and of no other."""


@dataclass(frozen=True, slots=True)
class World:
    """The state; `calls` counts all calls, so a second try may succeed."""

    tables: Tables
    calls: int = 0


def act(
    world: World, call: Call, tools: Mapping[str, ToolSpec], chance: ChanceSpec | None, seed: int
) -> tuple[World, str]:
    """The world after a call, and its result. Without `chance` nothing fails by itself."""
    after = World(world.tables, world.calls + 1)
    try:
        tool, given = _checked(call, tools)
        luck = _luck(world, call, chance, seed)
        if luck == "transient":
            draw = drawn("busy", seed, world.calls, call.name)
            return after, f"{ERROR}{draw.choice(table('phrases')['busy'])}"
        tables, result = operations()[tool.operation].run(world.tables, tool, given)
    except Refused as refusal:
        return after, f"{ERROR}{refusal}"
    if luck == "partial" and tool.effect == "read":
        result = _part(result)
    if luck == "edge":
        warning = drawn("edge", seed, world.calls).choice(table("phrases")["warnings"])
        result = {"warnings": [warning], "result": result}
    return World(tables, after.calls), written(result)


def written(result: Mapping[str, Any]) -> str:
    """A result as the model reads it."""
    return json.dumps(result, ensure_ascii=False, separators=(",", ":"))


def _checked(call: Call, tools: Mapping[str, ToolSpec]) -> tuple[ToolSpec, dict[str, Any]]:
    tool = tools.get(call.name)
    if tool is None:
        raise Refused(f"there is no tool {call.name}; there are: {', '.join(sorted(tools))}")
    # Terse declarations leave out that other arguments are refused.
    schema = {**tool.parameters, "additionalProperties": False}
    given, errors = read_arguments(call.arguments, schema)
    if errors:
        raise Refused("; ".join(errors[:5]))
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
    """The first half of the matches or values, marked as incomplete."""
    matches = result.get("matches")
    if isinstance(matches, list):
        kept: list[Any] = matches[: len(matches) // 2]
        return {**result, "matches": kept, "incomplete": True}
    names = list(result)[: max(1, len(result) // 2)]
    return {**{name: result[name] for name in names}, "incomplete": True}
