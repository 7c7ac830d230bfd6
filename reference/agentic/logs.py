"""Real tool logs: read, checked, counted; what is odd is named by file and line, and left out.

A `.jsonl` file has a dialogue per line, in OpenAI's form (`messages`, `tools`) or as text with Kimi
K2's markers (`text`); a `.txt` or `.log` file is one dialogue with markers, of either spelling.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from reference.dialog import Call, Dialog, Message, dialog_json, dialog_of
from reference.sandbox.schema import check_schema, errors_of
from reference.text.template import parse, segments_of, special_tokens
from twin.errors import Problem, ScenarioError, UsageError

_ROLES: Final = {"system", "user", "assistant", "tool"}
_TEXTS: Final = {".txt", ".log"}


class OddLogError(Exception):
    """What is wrong with a dialogue of a log: a reason of few words, and where."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}{': ' if detail else ''}{detail}")
        self.reason = reason


@dataclass(slots=True)
class Logs:
    """What was read."""

    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """As `export` writes them, without a verdict: nobody replays these worlds."""
    named: list[str] = field(default_factory=list[str])
    reasons: Counter[str] = field(default_factory=Counter[str])

    def report(self) -> dict[str, Any]:
        """Counts, and each odd one by its place."""
        return {
            "dialogues": len(self.rows) + len(self.named),
            "kept": len(self.rows),
            "odd": dict(sorted(self.reasons.items())),
            "named": list(self.named),
        }


def read_logs(paths: Iterable[Path]) -> Logs:
    """All dialogues of the files, and of the files in folders. Raises UsageError (TW567) for a
    path that is not there, or of another kind."""
    logs = Logs()
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
        return [one for one in sorted(path.iterdir()) if one.suffix in {".jsonl", *_TEXTS}]
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
    outside = [one for one in unread if one.strip()]
    if outside:
        raise OddLogError("text outside of messages", outside[0][:40])
    return dialog


def _check(dialog: Dialog) -> None:
    """Raises OddLogError for what a model should not learn."""
    if not any(one.role == "assistant" for one in dialog.messages):
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
    if message.role == "assistant" and any(one in message.content for one in special_tokens()):
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
    found: dict[str, Any] = {}
    for one in tools:
        try:
            said = one["function"]
            schema = said.get("parameters") or {}
            check_schema(schema, str(said["name"]))
            found[said["name"]] = schema
        except (KeyError, TypeError, AttributeError):
            raise OddLogError("a declaration that cannot be read") from None
        except ScenarioError as error:
            raise OddLogError("a schema that is not understood", str(error)) from None
    return found


def _row(place: str, dialog: Dialog) -> dict[str, Any]:
    return {
        "id": place,
        **dialog_json(dialog),
        "learned": [one.role == "assistant" for one in dialog.messages],
        "verdict": None,
        "provenance": {"domain": "unknown", "origin": place, "generator": "log", "split": "train"},
    }
