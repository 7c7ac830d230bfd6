"""Dialogues from JSONL files, one per line.

    {"id", "messages", "tools", "learned": [bool per message], "provenance": {"split": ...}}

`messages` and `tools` are in OpenAI's form (`reference.dialog`). Without `learned` all messages of
the assistant are; a message of anybody else never is. Lines whose split is `held_out` judge, others
train. Further keys are left alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reference.dialog import Dialog, dialog_of
from twin.errors import Problem, UsageError

HELD_OUT: Final = "held_out"
_ROLES: Final = frozenset({"system", "user", "assistant", "tool"})
_SHOWN: Final = 4
"""Wrong lines named in one message."""


@dataclass(frozen=True, slots=True)
class Example:
    """A dialogue, and which of its messages are to be learned."""

    dialog: Dialog
    learned: tuple[bool, ...]
    held_out: bool


def read_examples(sources: Sequence[str]) -> list[Example]:
    """All dialogues of the files, in order. Raises UsageError TW600 for a file that cannot be read,
    TW601 with the first lines that are no dialogues."""
    found: list[Example] = []
    wrong: list[Problem] = []
    for source in sources:
        for number, line in _lines(Path(source).expanduser()):
            try:
                found.append(_example(json.loads(line)))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                wrong.append(_refused(f"{source}:{number}", error))
            if len(wrong) == _SHOWN:
                raise UsageError(wrong)
    if wrong:
        raise UsageError(wrong)
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that hold anything, numbered from 1."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        message = f"cannot read `{path}`: {(why or str(error)).lower()}"
        fix = "`python -m reference.agentic` writes such files"
        raise UsageError([Problem("TW600", "dialogs.source", message, fix)]) from None
    rows = enumerate(text.splitlines(), start=1)
    return ((number, line) for number, line in rows if line.strip())


def _example(row: Mapping[str, Any]) -> Example:
    dialog = dialog_of(row)
    strange = {message.role for message in dialog.messages} - _ROLES
    if strange:
        raise ValueError(f"nobody is called `{min(strange)}`")
    said = [message.role == "assistant" for message in dialog.messages]
    given = row.get("learned", said)
    if len(given) != len(said) or not all(isinstance(one, bool) for one in given):
        raise ValueError(f"`learned` has not one true or false for each of {len(said)} messages")
    learned = tuple(wanted and own for wanted, own in zip(given, said, strict=True))
    held_out = (row.get("provenance") or {}).get("split") == HELD_OUT
    return Example(dialog, learned, held_out)


def _refused(where: str, error: Exception) -> Problem:
    why = f"`{error.args[0]}` is missing" if isinstance(error, KeyError) else str(error)
    fix = "a line is an object with `messages` and `tools` in OpenAI's form"
    return Problem("TW601", "dialogs.source", f"{where} is no dialogue: {why}", fix)
