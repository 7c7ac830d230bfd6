"""Tools that models call: which may be called, how often, for how long, with which arguments.

A call is checked in this order: its name, the list of allowed tools, its arguments, its rate. So a
refused call does not count for the rate, and an unlisted name reveals nothing else. A tool runs in
a thread that is given up at its time limit. A thread cannot be ended, so a tool that runs code uses
the sandbox, whose clock ends it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from reference.dialog import Call, declared
from reference.sandbox.isolation import Isolation
from reference.sandbox.job import RunLimits, python_text
from reference.sandbox.run import run
from reference.sandbox.schema import check_schema, read_arguments, text_arguments
from twin.spec.base import Count, Spec

ToolAction = Callable[[Mapping[str, Any]], Any]
"""Runs a tool on its arguments. Text is passed on; other values are written as JSON."""
ResultKind = Literal["done", "unknown", "forbidden", "limited", "invalid", "timeout", "failed"]
"""Done, or the reason: no such tool, not allowed, too often, wrong arguments, too slow, an error of
the tool."""


class CallRate(Spec):
    """How often a tool may be called."""

    burst: Count = 10
    """calls that a full bucket allows at once"""
    per_second: float = Field(default=10.0, gt=0, le=1e9)
    """calls added per second"""


class TokenBucket:
    """A token bucket on a clock in seconds; it starts full. Thread-safe.

    Source: Turner, "New directions in communications", IEEE Communications Magazine 24(10), 1986.
    """

    def __init__(self, rate: CallRate, clock: Callable[[], float]) -> None:
        self._rate, self._clock, self._lock = rate, clock, threading.Lock()
        self._level, self._at = float(rate.burst), clock()

    def take(self) -> float:
        """Take one call: 0.0, or the seconds until a call is available (then none is taken)."""
        with self._lock:
            now = self._clock()
            gained = (now - self._at) * self._rate.per_second
            self._level, self._at = min(self._rate.burst, self._level + gained), now
            # One call, less the rounding of times.
            if self._level >= 1 - 1e-9:
                self._level -= 1
                return 0.0
            return (1 - self._level) / self._rate.per_second


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model sees of its call."""

    id: str
    ended: ResultKind
    content: str

    @property
    def ok(self) -> bool:
        """Whether the tool was run without an error."""
        return self.ended == "done"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: its declaration and its action."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of its arguments."""
    run: ToolAction
    timeout_s: float = 30.0
    rate: CallRate = field(default_factory=CallRate)
    output: int = 16_384
    """Characters of a result; the middle of a longer result is left out."""

    def declaration(self) -> dict[str, Any]:
        """The declaration in OpenAI's `tools` and Kimi K2's template."""
        return declared(self.name, self.description, self.parameters)


class Tools:
    """Tools by name, with their rates."""

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
        self._buckets = {tool.name: TokenBucket(tool.rate, clock) for tool in tools}

    def declarations(self) -> list[dict[str, Any]]:
        """The declarations of the allowed tools, by name."""
        names = sorted(self._allowed & self._tools.keys())
        return [self._tools[name].declaration() for name in names]

    def call(self, call: Call) -> ToolResult:
        """The result of a call; never raises."""
        name = call.name
        tool = self._tools.get(name)
        if tool is None:
            known = ", ".join(sorted(self._allowed & self._tools.keys())) or "none"
            return ToolResult(
                call.id, "unknown", f"Error: there is no tool {name}; there are: {known}"
            )
        if name not in self._allowed:
            return ToolResult(call.id, "forbidden", f"Error: {name} may not be called here.")
        arguments, errors = read_arguments(call.arguments, tool.parameters)
        if errors:
            return ToolResult(call.id, "invalid", f"Error: {'; '.join(errors[:5])}")
        wait_s = self._buckets[name].take()
        if wait_s > 0:
            text = f"Error: {name} is called too often; there is a call in {wait_s:.1f} s."
            return ToolResult(call.id, "limited", text)
        return _run(call.id, tool, arguments)


def _run(call_id: str, tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
    results: list[ToolResult] = []

    def work() -> None:
        try:
            value = tool.run(arguments)
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            results.append(ToolResult(call_id, "done", _cut(text, tool.output)))
        except Exception as error:  # noqa: BLE001  the model reads any error
            text = f"Error: {type(error).__name__}: {error}"
            results.append(ToolResult(call_id, "failed", _cut(text, tool.output)))

    thread = threading.Thread(target=work, name=f"tool {tool.name}", daemon=True)
    thread.start()
    thread.join(tool.timeout_s)
    if results:
        return results[0]
    return ToolResult(
        call_id, "timeout", f"Error: {tool.name} took longer than {tool.timeout_s:g} s."
    )


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    missing = len(text) - 2 * half
    return f"{text[:half]}\n[... {missing:,} characters left out ...]\n{text[len(text) - half :]}"


def python_tool(limits: RunLimits | None = None, isolation: Isolation | None = None) -> Tool:
    """The tool `python`: runs Python text in the sandbox and returns its output."""
    chosen = limits or RunLimits()

    def work(arguments: Mapping[str, Any]) -> str:
        return run(python_text(arguments["code"]), chosen, isolation=isolation).report

    # The sandbox's own clock comes first; this timeout is for an overloaded machine.
    return Tool(
        "python",
        "Run Python code without network, in a folder of its own that is gone afterwards.",
        text_arguments(code="Python text; print what you need"),
        work,
        timeout_s=chosen.wall + 30,
    )
