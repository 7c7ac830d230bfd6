"""Files into the scratch folder and out of it, and as messages on a pipe.

Both happen while no untrusted process lives: before the first starts, after the last is dead. No
link is followed. A message is a length in 8 bytes, a JSON header of that length, and the bytes of
the files that the header lists as `[path, kind, executable, size]`. `kind` is `file`, `link` (its
bytes are the target) or `folder`. Paths are relative, with `/` between their parts.
"""
# ruff: noqa: PTH103, PTH115, PTH118, PTH120, PTH208, PTH211  pathlib is slow to load

from __future__ import annotations

import fnmatch
import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

TEMPORARY = ".tmp"
"""The folder for temporary files in the scratch folder; it is never returned."""


class Entry(NamedTuple):
    """A file, link or folder: its kind, its bytes (a link's target), whether it is executable."""

    kind: str
    data: bytes = b""
    executable: bool = False


def packed(header: dict[str, Any], files: Iterable[tuple[str, Entry]] = ()) -> bytes:
    """The message as bytes."""
    listed = list(files)
    rows = [[path, entry.kind, entry.executable, len(entry.data)] for path, entry in listed]
    text = json.dumps({**header, "files": rows}, ensure_ascii=True).encode()
    return b"".join([len(text).to_bytes(8, "big"), text, *(entry.data for _, entry in listed)])


def unpacked(message: bytes) -> tuple[dict[str, Any], dict[str, Entry]]:
    """Header and files of a message. Raises ValueError if it is cut or damaged."""
    end = 8 + int.from_bytes(message[:8], "big")
    header: dict[str, Any] = json.loads(message[8:end])
    files: dict[str, Entry] = {}
    for path, kind, executable, size in header.pop("files"):
        if len(message) < end + size:
            raise ValueError("the message ends early")
        files[path] = Entry(kind, message[end : end + size], executable)
        end += size
    return header, files


def length(message: bytes) -> int:
    """Bytes that follow the header, of a message that ends with it."""
    return sum(row[3] for row in json.loads(message[8:])["files"])


def fill(root: str, files: Mapping[str, Entry], owner: int | None) -> None:
    """Write the files below `root`, links last so that nothing is written through a link. They
    belong to `owner`, if given."""
    os.makedirs(os.path.join(root, TEMPORARY), exist_ok=True)
    for path, entry in sorted(files.items(), key=lambda item: (item[1].kind == "link", item[0])):
        target = os.path.join(root, path)
        os.makedirs(target if entry.kind == "folder" else os.path.dirname(target), exist_ok=True)
        if entry.kind == "link":
            os.symlink(entry.data, os.fsencode(target))
        elif entry.kind == "file":
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            mode = 0o755 if entry.executable else 0o644
            with os.fdopen(os.open(target, flags, mode), "wb") as new:
                new.write(entry.data)
    if owner is not None:
        for folder, folders, names in os.walk(root):
            for name in (".", *folders, *names):
                os.lchown(os.path.join(folder, name), owner, owner)


def collect(root: str, patterns: Sequence[str], most: int) -> tuple[dict[str, Entry], int]:
    """The entries below `root` that match a pattern, by path, and how many were left out: sockets,
    pipes, names that are not UTF-8 or too long, unreadable files, and all beyond `most` bytes."""
    found: dict[str, Entry] = {}
    left_out, room, waiting = 0, most, [""] if patterns else []
    while waiting:
        here = waiting.pop()
        try:
            names = sorted(os.listdir(os.path.join(root, here)))
        except OSError:
            left_out += 1
            continue
        for name in names:
            path = f"{here}/{name}" if here else name
            if path == TEMPORARY:
                continue
            entry = _entry(os.path.join(root, path), room)
            if entry is None or not _is_text(path):
                left_out += 1
                continue
            if entry.kind == "folder":
                waiting.append(path)
            if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns):
                found[path] = entry
                room -= len(entry.data)
    return found, left_out


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _entry(path: str, room: int) -> Entry | None:
    try:
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode):
            return Entry("folder")
        if stat.S_ISLNK(found.st_mode):
            return Entry("link", os.readlink(os.fsencode(path)))
        # A sparse file may grow while it is read, so the read is bounded too.
        if not stat.S_ISREG(found.st_mode) or found.st_size > room:
            return None
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "rb") as file:
            return Entry("file", file.read(room), bool(found.st_mode & 0o100))
    except OSError:
        return None


def used(root: str) -> tuple[int, int]:
    """Bytes and files in the folder now, counted one by one."""
    total = count = 0
    waiting = [root]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as items:
                for item in items:
                    count += 1
                    total += item.stat(follow_symlinks=False).st_blocks * 512
                    if item.is_dir(follow_symlinks=False):
                        waiting.append(item.path)
        except OSError:
            continue  # deleted meanwhile, or its path is too long; the next look counts it
    return total, count
