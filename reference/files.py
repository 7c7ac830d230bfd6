"""Files that survive a loss of power, and tables beside the code, in YAML."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML


def sync(path: Path) -> None:
    """Put a file, or a folder's entries, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_synced(path: Path, content: str | bytes) -> None:
    """Write a file and put it on the disk."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    sync(path)


def replace_synced(path: Path, content: str | bytes) -> None:
    """Write a file in one move: a process killed in between leaves the old file."""
    partial = path.with_name(f".{path.name}.partial")
    write_synced(partial, content)
    partial.replace(path)


@cache
def yaml_table(path: Path) -> Any:
    """The plain values of a YAML file; it is read once, so do not change them."""
    return plain_yaml(path.read_text(encoding="utf-8"))


def plain_yaml(text: str) -> Any:
    """The plain values of a YAML text."""
    return YAML(typ="safe", pure=True).load(text)
