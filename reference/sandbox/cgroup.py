"""A memory cgroup for one run: the kernel counts all that its processes cause, mapped or not.

Only it sees pages that no process maps, and buffers of pipes and sockets. Whether this user may
make one is tried; most users may not. Sources: Linux `Documentation/admin-guide`,
`cgroup-v1/memory.rst` and `cgroup-v2.rst`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_LIMITS = {
    "cgroup": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control"),
    "cgroup2": ("memory.max", "memory.swap.max", "memory.events"),
}
"""By version: the files of the limit, of the limit that swap has, and of what the limit did."""

_ABANDONED_S = 3600.0
"""Age at which an empty group is nobody's."""


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A cgroup while it exists."""

    folder: Path
    version: str

    def limit(self, bytes: int) -> None:
        """The most that its processes may hold together, swap included. Raises OSError."""
        most, swap, _ = _LIMITS[self.version]
        (self.folder / most).write_text(f"{bytes}")
        with contextlib.suppress(OSError):  # a machine without swap may lack the file
            (self.folder / swap).write_text("0" if self.version == "cgroup2" else f"{bytes}")

    def killed(self) -> bool:
        """Whether the limit ended a process."""
        lines = (self.folder / _LIMITS[self.version][2]).read_text().splitlines()
        return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in lines)


@contextmanager
def memory_group(bytes: int) -> Iterator[tuple[MemoryGroup, int] | None]:
    """A cgroup with this limit, and an open file that takes a process into it by writing 0; None
    where none can be made."""
    place = parent()
    if place is None:
        yield None
        return
    group = _made(*place)
    try:
        group.limit(bytes)
        entrance = os.open(group.folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        try:
            yield group, entrance
        finally:
            os.close(entrance)
    finally:
        _remove(group.folder)


@cache
def parent() -> tuple[Path, str] | None:
    """Where cgroups can be made that limit memory, and their version; None: nowhere."""
    for folder, version in _candidates():
        try:
            _sweep(folder)
            group = _made(folder, version)
        except OSError:
            continue
        try:
            group.limit(1 << 24)
            group.killed()
        except OSError:
            continue
        else:
            return folder, version
        finally:
            _remove(group.folder)
    return None


def _made(folder: Path, version: str) -> MemoryGroup:
    return MemoryGroup(Path(tempfile.mkdtemp(prefix="twin-sandbox-", dir=folder)), version)


def _remove(folder: Path) -> None:
    """A cgroup whose processes are dead; the kernel may take a moment to see that they are."""
    for _ in range(50):
        try:
            folder.rmdir()
        except OSError:
            time.sleep(0.01)
        else:
            return


def _sweep(folder: Path) -> None:
    """Remove what callers that were killed left; a group with processes stays."""
    for left in folder.glob("twin-sandbox-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_S:
                left.rmdir()


def _candidates() -> Iterator[tuple[Path, str]]:
    """This process's own cgroup, then the topmost one, of each mounted hierarchy that has memory
    (cgroups(7); the fields of mountinfo: proc(5))."""
    own = dict(line.split(":", 2)[1:] for line in _lines("/proc/self/cgroup"))
    for line in _lines("/proc/self/mountinfo"):
        words, _, kind = line.partition(" - ")
        version, _, options = kind.split(" ")
        if version == "cgroup2" or (version == "cgroup" and "memory" in options.split(",")):
            mounted = Path(words.split(" ")[4])
            wanted = "" if version == "cgroup2" else "memory"
            below = next((own[name] for name in own if wanted in name.split(",")), "/")
            yield from ((mounted / below.lstrip("/"), version), (mounted, version))


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
