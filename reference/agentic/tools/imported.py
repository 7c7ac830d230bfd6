"""Tools that others declared: answers of MCP's `tools/list`, and OpenAI's `tools`.

They are declared to agents as they are; nothing runs them here, so a call is refused, and an agent
that calls one is told so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from reference.agentic.tools.spec import ToolSpec
from reference.sandbox.schema import check_schema
from twin.errors import Problem, ScenarioError, UsageError

_NAME: Final = re.compile(r"[A-Za-z_][\w.-]{0,127}")


def read_tools(path: Path) -> list[ToolSpec]:
    """The tools of a file, of the application that the file is named after. Raises UsageError
    (TW565) for a file that holds no list of tools, or a tool that cannot be understood."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _wrong(path, "", f"cannot be read: {error}") from None
    rows = _rows(document)
    if rows is None:
        raise _wrong(path, "", "holds neither MCP's nor OpenAI's list of tools")
    return [_tool(row, at, path) for at, row in enumerate(rows)]


def _rows(document: Any) -> list[Any] | None:
    """The list: by itself, below `tools`, or below `result.tools` as a server answers."""
    for key in ("result", "tools"):
        if isinstance(document, dict) and key in document:
            document = document[key]
    return document if isinstance(document, list) else None


def _tool(row: Any, at: int, path: Path) -> ToolSpec:
    if not isinstance(row, dict):
        raise _wrong(path, f"[{at}]", "is no object")
    said = row["function"] if isinstance(row.get("function"), dict) else row
    name = said.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _wrong(path, f"[{at}].name", f"{name!r} is no name of a tool")
    schema = said.get("inputSchema", said.get("parameters", {"type": "object", "properties": {}}))
    if not isinstance(schema, dict):
        raise _wrong(path, f"[{at}]", "its schema is no object")
    cleaned = {"type": "object", "properties": {}, **schema}
    try:
        check_schema(cleaned, f"{path.name}[{at}]")
    except ScenarioError as error:
        raise _wrong(path, f"[{at}]", str(error)) from None
    told = str(said.get("description") or row.get("title") or name)
    application = re.sub(r"\W+", "_", path.stem).strip("_") or "imported"
    return ToolSpec(name, told, cleaned, "unknown", application, _effect(row))


def _effect(row: dict[str, Any]) -> Any:
    """What MCP's annotations say; most tools say nothing."""
    notes = row.get("annotations") or {}
    if notes.get("readOnlyHint"):
        return "read"
    return "delete" if notes.get("destructiveHint") else "unknown"


def unique(tools: Iterable[ToolSpec]) -> list[ToolSpec]:
    """The first tool of each name."""
    return list({one.name: one for one in reversed(list(tools))}.values())[::-1]


def _wrong(path: Path, place: str, message: str) -> UsageError:
    fix = "give a file with `tools`: name, description, inputSchema or parameters"
    return UsageError([Problem("TW565", f"{path.name}{place}", message, fix)])
