"""The untrusted processes: which live, what they use, how they are ended.

They are the descendants of the supervisor. No process leaves that tree: the supervisor is the first
process of its namespace, or adopts orphans.

Source: Linux `Documentation/filesystems/proc.rst`, table 1-4.
"""
# ruff: noqa: PTH123, PTH208  pathlib is slow to load

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Usage(NamedTuple):
    """What living processes use: their ids, threads, resident bytes and CPU seconds."""

    processes: tuple[int, ...]
    threads: int
    memory: int
    cpu_s: float


def descendants() -> Usage:
    """The usage of all living descendants of this process; shared pages count twice."""
    rows = {pid: row for pid in _pids() if (row := _row(pid)) is not None}
    parents: dict[int, list[int]] = {}
    for pid, row in rows.items():
        parents.setdefault(int(row[1]), []).append(pid)
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    alive = [pid for pid in found if rows[pid][0] != "Z"]
    # Fields by proc(5), less the first two: state, parent ... 11-14 times, 17 threads, 21 resident.
    times = sum(int(field) for pid in found for field in rows[pid][11:15])
    memory = sum(_resident(pid, int(rows[pid][21])) for pid in alive)
    return Usage(tuple(alive), sum(int(rows[pid][17]) for pid in alive), memory, times / _TICKS)


def _resident(pid: int, pages: int) -> int:
    """Its own bytes and shared memory, without code that it maps from files."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            shared = int(file.read().split()[2])
    except (OSError, IndexError):
        return 0
    return max(0, pages - shared) * _PAGE


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _row(pid: int) -> list[str] | None:
    """The fields of its `stat` after the name, which may contain anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode("ascii").split()
    except OSError:
        return None


def end_all(owner: int | None) -> int:
    """Kill all descendants, wait until none is left, and return their number.

    The first process of a namespace reaches all with one signal; root does so as their user.
    Otherwise they are killed until none is found; a limit bounds their number.
    """
    killed: set[int] = set()
    until, empty = time.monotonic() + 5, 0
    # One look may miss a process whose parent just ended; two in a row do not.
    while empty < 2 and time.monotonic() < until:
        found = descendants().processes
        killed.update(found)
        empty = 0 if found else empty + 1
        _signal(owner, found)
        reap()
    return len(killed)


def _signal(owner: int | None, found: tuple[int, ...]) -> None:
    if os.getpid() == 1:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    elif owner is not None:
        child = os.fork()
        if child == 0:
            try:
                os.setresuid(owner, owner, owner)
                os.kill(-1, signal.SIGKILL)  # it spares its sender
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    else:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def reap() -> dict[int, int]:
    """Wait statuses of the children that ended since the last call."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status
