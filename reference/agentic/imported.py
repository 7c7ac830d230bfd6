"""Tools and dialogues of others: MCP's and OpenAI's lists of tools, and real logs.

Imported tools are declared to agents as they are; nothing runs them here, so every call is refused.
Logs are read, checked and counted; an odd dialogue is reported by file and line, and left out. A
`.jsonl` log has a dialogue per line, in OpenAI's form (`messages`, `tools`) or as text with Kimi
K2's markers (`text`); a `.txt` or `.log` file is one dialogue with markers, of either spelling.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from reference.agentic.operations.base import ToolSpec
from reference.dialog import Call, Dialog, Message, dialog_json, dialog_of
from reference.sandbox.schema import check_schema, errors_of
from reference.text.template import parse, segments_of, special_tokens
from twin.errors import Problem, ScenarioError, UsageError

_NAME: Final = re.compile(r"[A-Za-z_][\w.-]{0,127}")
_ROLES: Final = {"system", "user", "assistant", "tool"}
_TEXTS: Final = {".txt", ".log"}


def read_tools(path: Path) -> list[ToolSpec]:
    """The tools of a file; the file's name is their application. Raises UsageError (TW565) for a
    file without a list of tools, or a tool that cannot be read."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _wrong(path, "", f"cannot be read: {error}") from None
    rows = _listed(document)
    if rows is None:
        raise _wrong(path, "", "holds neither MCP's nor OpenAI's list of tools")
    return [_tool(row, at, path) for at, row in enumerate(rows)]


def _listed(document: Any) -> list[Any] | None:
    """The list: the document itself, `tools`, or `result.tools` as in a server's answer."""
    for key in ("result", "tools"):
        if isinstance(document, dict) and key in document:
            document = document[key]
    return document if isinstance(document, list) else None


def _tool(row: Any, at: int, path: Path) -> ToolSpec:
    if not isinstance(row, dict):
        raise _wrong(path, f"[{at}]", "is no object")
    declared = row["function"] if isinstance(row.get("function"), dict) else row
    name = declared.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _wrong(path, f"[{at}].name", f"{name!r} is no name of a tool")
    schema = declared.get("inputSchema", declared.get("parameters", {}))
    if not isinstance(schema, dict):
        raise _wrong(path, f"[{at}]", "its schema is no object")
    cleaned = {"type": "object", "properties": {}, **schema}
    try:
        check_schema(cleaned, f"{path.name}[{at}]")
    except ScenarioError as error:
        raise _wrong(path, f"[{at}]", str(error)) from None
    described = str(declared.get("description") or row.get("title") or name)
    application = re.sub(r"\W+", "_", path.stem).strip("_") or "imported"
    return ToolSpec(name, described, cleaned, "unknown", application, _effect(row))


def _effect(row: dict[str, Any]) -> Any:
    """The effect by MCP's annotations; most tools have none."""
    notes = row.get("annotations") or {}
    if notes.get("readOnlyHint"):
        return "read"
    return "delete" if notes.get("destructiveHint") else "unknown"


def _wrong(path: Path, place: str, message: str) -> UsageError:
    fix = "give a file with `tools`: name, description, inputSchema or parameters"
    return UsageError([Problem("TW565", f"{path.name}{place}", message, fix)])


class OddLogError(Exception):
    """An odd dialogue of a log: a short reason, and the place."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}{': ' if detail else ''}{detail}")
        self.reason = reason


@dataclass(slots=True)
class ImportedLogs:
    """The dialogues of logs."""

    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Rows as in `trajectories.jsonl`, without a verdict: these worlds cannot be replayed."""
    named: list[str] = field(default_factory=list[str])
    reasons: Counter[str] = field(default_factory=Counter[str])

    def report(self) -> dict[str, Any]:
        """Counts, and the odd dialogues by place."""
        return {
            "dialogues": len(self.rows) + len(self.named),
            "kept": len(self.rows),
            "odd": dict(sorted(self.reasons.items())),
            "named": list(self.named),
        }


def read_logs(paths: Iterable[Path]) -> ImportedLogs:
    """All dialogues of the files, and of files in folders. Raises UsageError (TW567) for a missing
    path or another type of file."""
    logs = ImportedLogs()
    for path in paths:
        for file in _files(path):
            for place, raw in _raw(file):
                try:
                    dialog = _dialog(raw)
                    _check(dialog)
                except OddLogError as error:
                    logs.reasons[error.reason] += 1
                    logs.named.append(f"{place}: {error}")
                else:
                    logs.rows.append(_row(place, dialog))
    return logs


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return [file for file in sorted(path.iterdir()) if file.suffix in {".jsonl", *_TEXTS}]
    if not path.is_file() or path.suffix not in {".jsonl", *_TEXTS}:
        fix = "give .jsonl, .txt or .log files, or a folder of them"
        raise UsageError([Problem("TW567", "logs", f"`{path}` is no log", fix)])
    return [path]


def _raw(file: Path) -> Iterator[tuple[str, str | bytes]]:
    """Each dialogue's text with its place."""
    content = file.read_bytes()
    if file.suffix in _TEXTS:
        yield file.name, content.decode(errors="replace")
        return
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            yield f"{file.name}:{number}", line


def _dialog(raw: str | bytes) -> Dialog:
    if isinstance(raw, str):
        return _marked(raw)
    try:
        row = json.loads(raw)
    except (ValueError, RecursionError):
        raise OddLogError("no JSON") from None
    if not isinstance(row, dict):
        raise OddLogError("no object")
    if isinstance(row.get("text"), str):
        return _marked(row["text"])
    try:
        return dialog_of(row)
    except (KeyError, TypeError, AttributeError) as error:
        raise OddLogError("messages that cannot be read", repr(error)) from None


def _marked(text: str) -> Dialog:
    try:
        dialog, unread = parse(segments_of(text))
    except (ValueError, RecursionError):
        raise OddLogError("a declaration that is no JSON") from None
    outside = [text for text in unread if text.strip()]
    if outside:
        raise OddLogError("text outside of messages", outside[0][:40])
    return dialog


def _check(dialog: Dialog) -> None:
    """Raises OddLogError for a dialogue that a model should not learn."""
    if not any(message.role == "assistant" for message in dialog.messages):
        raise OddLogError("no assistant")
    schemas = _schemas(dialog.tools)
    waiting: list[str] = []
    for at, message in enumerate(dialog.messages):
        _check_message(message, at)
        if message.role == "tool":
            if message.answers not in waiting:
                raise OddLogError("a result without a call", f"message {at}")
            waiting.remove(message.answers)
            continue
        if waiting:
            raise OddLogError("a call without a result", waiting[0])
        for call in message.calls:
            _check_call(call, schemas)
        waiting = [call.id for call in message.calls]
        if len(set(waiting)) < len(waiting):
            raise OddLogError("two calls with one id", waiting[0])
    if waiting:
        raise OddLogError("a call without a result", waiting[0])
    if dialog.messages[-1].role != "assistant":
        raise OddLogError("no answer at the end")


def _check_message(message: Message, at: int) -> None:
    if message.role not in _ROLES or not isinstance(message.content, str):
        raise OddLogError("a role or text that is none", f"message {at}")
    if message.role == "assistant" and any(token in message.content for token in special_tokens()):
        raise OddLogError("a marker in what was said", f"message {at}")


def _check_call(call: Call, schemas: Mapping[str, Any]) -> None:
    try:
        given = json.loads(call.arguments or "{}")
    except (ValueError, TypeError, RecursionError):
        raise OddLogError("arguments that are no JSON", call.id) from None
    if not isinstance(given, dict):
        raise OddLogError("arguments that are no object", call.id)
    if call.name not in schemas:
        raise OddLogError("a call of a tool that is not declared", call.name)
    wrong = next(errors_of(given, schemas[call.name]), None)
    if wrong is not None:
        raise OddLogError("arguments that do not fit", f"{call.id}: {wrong}")


def _schemas(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for tool in tools:
        try:
            declared = tool["function"]
            schema = declared.get("parameters") or {}
            check_schema(schema, str(declared["name"]))
            schemas[declared["name"]] = schema
        except (KeyError, TypeError, AttributeError):
            raise OddLogError("a declaration that cannot be read") from None
        except ScenarioError as error:
            raise OddLogError("a schema that is not understood", str(error)) from None
    return schemas


def _row(place: str, dialog: Dialog) -> dict[str, Any]:
    return {
        "id": place,
        **dialog_json(dialog),
        "learned": [message.role == "assistant" for message in dialog.messages],
        "verdict": None,
        "provenance": {"domain": "unknown", "origin": place, "generator": "log", "split": "train"},
    }
