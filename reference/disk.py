"""Files that survive a loss of power."""

from __future__ import annotations

import os
from pathlib import Path


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
