"""Calls of tools into results, whatever the model wrote.

A call is looked at in this order: its name, the list of what may be called, its arguments, its
rate. So a refused call takes nothing out of the bucket, and a name that is not on the list tells no
more than that. A tool is run in a thread that is given up when its time is over; a thread cannot be
ended, so a tool that runs code runs it in the sandbox, whose clock ends it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reference.dialog import Call, declared
from reference.sandbox.tools.rate import Bucket, Rate
from reference.sandbox.tools.result import Result
from reference.sandbox.tools.schema import check_schema, errors_of

Run = Callable[[Mapping[str, Any]], Any]
"""What a tool does with its arguments; text stays as it is, other values are written as JSON."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as it is declared to the model, and what it does."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of its arguments."""
    run: Run
    timeout_s: float = 30.0
    rate: Rate = field(default_factory=Rate)
    output: int = 16_384
    """Characters of a result; the middle of a longer one is left out."""

    def declaration(self) -> dict[str, Any]:
        """As OpenAI's `tools` and Kimi K2's template have it."""
        return declared(self.name, self.description, self.parameters)


class Tools:
    """Tools by name, with the state of their rates."""

    def __init__(
        self,
        tools: Sequence[Tool],
        allowed: Sequence[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for tool in tools:
            check_schema(dict(tool.parameters), f"tools.{tool.name}.parameters")
        self._tools = {tool.name: tool for tool in tools}
        self._allowed = frozenset(self._tools if allowed is None else allowed)
        self._buckets = {tool.name: Bucket(tool.rate, clock) for tool in tools}

    def declarations(self) -> list[dict[str, Any]]:
        """The declarations of those that may be called, by name."""
        names = sorted(self._allowed & self._tools.keys())
        return [self._tools[name].declaration() for name in names]

    def call(self, call: Call) -> Result:
        """What the model is told of its call; never an exception."""
        name = call.name
        tool = self._tools.get(name)
        if tool is None:
            known = ", ".join(sorted(self._allowed & self._tools.keys())) or "none"
            return Result(call.id, "unknown", f"Error: there is no tool {name}; there are: {known}")
        if name not in self._allowed:
            return Result(call.id, "forbidden", f"Error: {name} may not be called here.")
        arguments, wrong = _arguments(call.arguments, tool)
        if wrong:
            return Result(call.id, "invalid", f"Error: {'; '.join(wrong[:5])}")
        wait_s = self._buckets[name].take()
        if wait_s > 0:
            told = f"Error: {name} is called too often; there is a call in {wait_s:.1f} s."
            return Result(call.id, "limited", told)
        return _run(call.id, tool, arguments)


def _arguments(text: str, tool: Tool) -> tuple[dict[str, Any], list[str]]:
    try:
        value = json.loads(text or "{}", parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        return {}, [f"the arguments are no JSON: {error}"]
    if not isinstance(value, dict):
        return {}, ["the arguments must be a JSON object"]
    return value, list(errors_of(value, tool.parameters))


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _run(call_id: str, tool: Tool, arguments: Mapping[str, Any]) -> Result:
    found: list[Result] = []

    def work() -> None:
        try:
            value = tool.run(arguments)
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            found.append(Result(call_id, "done", _cut(text, tool.output)))
        except Exception as error:  # noqa: BLE001  whatever a tool raises, the model is told
            told = f"Error: {type(error).__name__}: {error}"
            found.append(Result(call_id, "failed", _cut(told, tool.output)))

    thread = threading.Thread(target=work, name=f"tool {tool.name}", daemon=True)
    thread.start()
    thread.join(tool.timeout_s)
    if found:
        return found[0]
    return Result(call_id, "timeout", f"Error: {tool.name} took longer than {tool.timeout_s:g} s.")


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    missing = len(text) - 2 * half
    return f"{text[:half]}\n[... {missing:,} characters left out ...]\n{text[len(text) - half :]}"
