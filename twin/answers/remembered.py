"""What a planner says once, kept in the user's folder of settings: `TWIN_CONFIG`, or `twin` below
`XDG_CONFIG_HOME`, or `~/.config/twin`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from twin.answers.run_store import write_file
from twin.loading.files import read_bytes

PRICE: Final = "price"
"""Of a GPU-hour."""


def remembered(name: str) -> str:
    """What was said last; empty where nothing was, or nothing can be read."""
    try:
        return read_bytes(_place(name)).decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def remember(name: str, text: str) -> None:
    """Keep what is said. A folder that cannot be written keeps nothing."""
    if text != remembered(name):
        with suppress(OSError):
            write_file(_place(name), f"{text}\n".encode())


def _place(name: str) -> Path:
    folder = os.environ.get("TWIN_CONFIG")
    if folder:
        return Path(folder) / name
    above = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(above) / "twin" / name
