"""Little dialogues with tools, as lines of a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reference.dialog import Dialog, Message, declared, dialog_json, numbered

ROOM = 700
"""A sequence that holds any of them, in bytes."""


def row(number: int, *, held_out: bool = False) -> dict[str, Any]:
    """A user asks for a town's weather; the assistant calls, is answered, and says so."""
    town = f"Town{number}"
    call = numbered("weather", 0, json.dumps({"town": town}))
    messages = (
        Message("user", f"How is {town}?"),
        Message("assistant", "", (call,)),
        Message("tool", f"rain {number}", answers=call.id),
        Message("assistant", f"Rain {number}." + "!" * number),
    )
    tool = declared("weather", "w", {"type": "object"})
    split = "held_out" if held_out else "train"
    told = dialog_json(Dialog(messages, (tool,) if number % 2 else ()))
    return {**told, "id": str(number), "provenance": {"split": split}}


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return path
