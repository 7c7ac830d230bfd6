"""The folder of stored answers, and the one way to write there: whole or not at all.

Files and folders are written under another name and renamed into place, so that a process that is
killed leaves a complete entry or none, and processes that write at once may share a folder. Entries
that can be computed again are not flushed to the disk: their readers check them.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from twin.errors import Problem, UsageError

_LOG = logging.getLogger(__name__)

_ABANDONED: Final = 3600
"""Seconds after which an unfinished entry of another process counts as abandoned."""


def runs_folder() -> Path:
    """The folder of stored answers: `TWIN_RUNS`, or `runs` in the working directory."""
    return Path(os.environ.get("TWIN_RUNS") or "runs")


def write_file(path: Path, data: bytes, *, once: bool = False) -> None:
    """Write a file whole or not at all, with the folders above it. It replaces an older file.

    With `once` it never does: the file is read-only, flushed to the disk, and `FileExistsError` is
    raised where the name is taken. Raises `OSError` where the system refuses.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _unfinished(path)
    try:
        unfinished.write_bytes(data)
        if once:
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
            unfinished.chmod(0o444)
            path.hardlink_to(unfinished)
        else:
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_folder(path: Path, files: Mapping[str, bytes]) -> Path | None:
    """Write a folder of files whole or not at all; it replaces an older folder. Returns its path,
    or None where other processes keep the name busy. Raises `OSError` where the system refuses."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _unfinished(path)
    unfinished.mkdir()
    try:
        for name, data in files.items():
            (unfinished / name).write_bytes(data)
        return _rename_over(unfinished, path)
    finally:
        discard(unfinished)


def remove(path: Path) -> None:
    """Delete an entry, renamed first so that nobody reads half of it. Raises `UsageError` TW063
    where the system refuses."""
    try:
        aside = path.rename(_unfinished(path))
        shutil.rmtree(aside)
    except OSError as error:
        message = f"`{path}` cannot be removed: {error.strerror}"
        raise UsageError([Problem("TW063", "", message)]) from None


def discard(path: Path) -> None:
    """Delete a file or folder, if it exists and can be deleted."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def discard_abandoned(folder: Path, pattern: str = ".*.tmp") -> None:
    """Delete the unfinished entries that killed processes left in a folder."""
    for path in folder.glob(pattern):
        try:
            if time.time() - path.stat().st_mtime > _ABANDONED:
                discard(path)
        except OSError:
            continue


def unwritable(path: Path, error: OSError, option: str = "") -> UsageError:
    """The problem TW063 of a file or folder that cannot be written."""
    message = f"`{path}` cannot be written: {error.strerror or error}"
    return UsageError([Problem("TW063", option, message)])


@contextmanager
def optional(entries: str, folder: Path) -> Generator[None]:
    """Go on without storing where the system refuses, with one warning per folder and reason."""
    try:
        yield
    except OSError as error:
        _warn_once(entries, str(folder), error.strerror or str(error))


@cache
def _warn_once(entries: str, folder: str, reason: str) -> None:
    _LOG.warning("%s are not stored: `%s` cannot be written (%s).", entries, folder, reason)


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{secrets.token_hex(8)}.tmp")


def _rename_over(unfinished: Path, path: Path) -> Path | None:
    """Rename a finished folder into place; the older entry is moved aside first. Between the two
    there is no entry: a process that reads then computes its answer itself."""
    for _ in range(3):
        try:
            return unfinished.rename(path)
        except OSError:
            old = _unfinished(path)
            try:
                path.rename(old)
            except FileNotFoundError:  # another process moved it: try again
                continue
            discard(old)
    return path if path.is_dir() else None
