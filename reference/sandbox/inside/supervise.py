"""The process beside untrusted code: fills its folder, starts, watches and ends it, and answers.

A job comes on standard input, one answer goes to standard output (`files`). When standard input
ends, the caller is gone, and this process ends the job. Exit codes: 0 with an answer (which may be
that a protection failed), 1 for a bug.

The program is a child that gives up its rights in a fixed order: limits and files first, then the
user, then what is final (no new privileges, Landlock, the filter of calls).

The untrusted processes are the descendants of the supervisor. No process leaves that tree: the
supervisor is the first process of its namespace, or adopts orphans (Linux
`Documentation/filesystems/proc.rst`, table 1-4).
"""

from __future__ import annotations

import base64
import contextlib
import os
import resource
import select
import signal
import sys
import time
from typing import Any, NamedTuple, NoReturn

from reference.sandbox.inside import kernel
from reference.sandbox.inside.files import Entry, collect, fill, length, packed, unpacked, used

# ruff: noqa: PTH123, PTH208  pathlib is slow to load


_TICKS = os.sysconf("SC_CLK_TCK")


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
    # Fields by proc(5), less the first two: state, parent ... 11-14 times, 17 threads.
    times = sum(int(field) for pid in found for field in rows[pid][11:15])
    memory = sum(map(_resident, alive))
    return Usage(tuple(alive), sum(int(rows[pid][17]) for pid in alive), memory, times / _TICKS)


def _resident(pid: int) -> int:
    """Its own bytes and shared memory, without code that it maps from files (proc(5), `status`)."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = [line.split() for line in file if line.startswith((b"RssAnon", b"RssShmem"))]
    except OSError:
        return 0
    return sum(int(words[1]) for words in lines) << 10


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


_EVERY_S = 0.02
"""Seconds between two looks at the processes' usage; more if a look takes long."""
NOT_RUN = 127
"""Exit code of a program that could not be started, as in shells."""


def main() -> None:
    """Do the job on standard input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    kernel.die_with_parent()
    job, files = _read_job()
    try:
        _enter(job)
        answer, kept = _run(job, files)
    except OSError as error:
        answer, kept = {"error": f"{error.strerror or error}"}, {}
    _write_all(1, packed(answer, kept.items()))


def _read_job() -> tuple[dict[str, Any], dict[str, Entry]]:
    start_of = sys.stdin.buffer.raw.read  # type: ignore[attr-defined]  # unbuffered: EOF is watched
    message = _exactly(start_of, 8)
    message += _exactly(start_of, int.from_bytes(message, "big"))
    return unpacked(message + _exactly(start_of, length(message)))


def _exactly(read: Any, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0:
        part = read(min(size, 1 << 20))
        if not part:
            os._exit(1)  # the caller is gone
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _write_all(stream: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(stream, view[: 1 << 20]) :]


def _enter(job: dict[str, Any]) -> None:
    """Enter the namespaces of the job; this process continues as the first inside them."""
    flags, user, group = job["protect"]["namespaces"], os.geteuid(), os.getegid()
    if flags:
        kernel.unshare(flags)
        if flags & kernel.NEW_USERS:
            kernel.map_user(user, user, group)
    if flags & kernel.NEW_PIDS:
        child = os.fork()
        if child:
            # The child answers through the same pipe; this process only waits.
            _, status = os.waitpid(child, 0)
            os._exit(os.waitstatus_to_exitcode(status) and 1)
        kernel.die_with_parent()
    if flags & kernel.NEW_MOUNTS:
        limits = job["limits"]
        kernel.own_mounts(job["root"], limits["scratch"], limits["files"])
    kernel.adopt_orphans()
    kernel.hide_memory()


def _run(job: dict[str, Any], files: dict[str, Entry]) -> tuple[dict[str, Any], dict[str, Entry]]:
    root, owner = job["root"], job["owner"]
    fill(root, files, owner)
    began = time.monotonic()
    child = start(job)
    watch = ProgramWatch(job, child)
    try:
        watch.until_over(began)
    finally:
        left = end_all(owner)
    watch.drain()
    times = os.times()
    kept, left_out = collect(root, job["keep"], job["limits"]["scratch"])
    return {
        "ended": watch.why,
        "status": watch.status,
        "stdout": watch.out.as_dict(),
        "stderr": watch.err.as_dict(),
        "wall_s": time.monotonic() - began,
        "cpu_s": times.children_user + times.children_system,
        "memory": watch.memory,
        "left": left,
        "left_out": left_out,
    }, kept


class Child(NamedTuple):
    """The program's process id, and the supervisor's ends of its pipes."""

    pid: int
    stdin: int
    stdout: int
    stderr: int


def start(job: dict[str, Any]) -> Child:
    """Start the program. Raises OSError if a protection fails; then nothing has run."""
    (give_0, give_1), (out_0, out_1), (err_0, err_1), (say_0, say_1) = (os.pipe() for _ in "0123")
    pid = os.fork()
    if pid == 0:
        _become(job, (give_0, out_1, err_1), say_1)
    for end in (give_0, out_1, err_1, say_1):
        os.close(end)
    with os.fdopen(say_0, "rb") as said:
        trouble = said.read()
    if trouble:
        number, _, text = trouble.decode().partition(" ")
        raise OSError(int(number), text)
    for end in (give_1, out_0, err_0):
        os.set_blocking(end, False)
    return Child(pid, give_1, out_0, err_0)


def _become(job: dict[str, Any], streams: tuple[int, int, int], say: int) -> NoReturn:
    try:
        # Pipes may have the numbers 0 to 2 themselves, where the caller had those closed.
        for number, stream in enumerate([os.dup(stream) for stream in streams]):
            os.dup2(stream, number, inheritable=True)
        if job["entrance"] is not None:
            os.write(job["entrance"], b"0")
        os.set_inheritable(say, False)
        _close_above(2, say)
        _give_up(job)
        for number in range(1, signal.NSIG):
            if number not in (signal.SIGKILL, signal.SIGSTOP) and number not in range(32, 34):
                signal.signal(number, signal.SIG_DFL)
    except BaseException as error:  # noqa: BLE001  after any failure the program must not run
        number = error.errno if isinstance(error, OSError) else 0
        os.write(say, f"{number or 0} {error}".encode()[:4000])
        os._exit(NOT_RUN)
    try:
        os.chdir(job["folder"])
        os.execve(job["argv"][0], job["argv"], job["environment"])
    except OSError as error:
        os.close(say)
        os.write(2, f"{job['argv'][0]}: {error.strerror}\n".encode())
    os._exit(NOT_RUN)


def _close_above(last: int, spare: int) -> None:
    """Close all other files of the supervisor in the program."""
    os.closerange(last + 1, spare)
    os.closerange(spare + 1, os.sysconf("SC_OPEN_MAX"))


def _give_up(job: dict[str, Any]) -> None:
    # A full cgroup, or machine, ends the program before any other. The file is root's where the
    # supervisor cannot be traced: then the kernel chooses.
    with (
        contextlib.suppress(PermissionError),
        open("/proc/self/oom_score_adj", "w", encoding="ascii") as file,
    ):
        file.write("1000")
    limits, owner, protect = job["limits"], job["owner"], job["protect"]
    os.setsid()
    os.umask(0o022)
    for name, most in (
        ("AS", limits["memory"]),
        ("FSIZE", limits["file_size"]),
        ("NOFILE", limits["open_files"]),
        ("NPROC", limits["processes"]),
        ("CORE", 0),
        ("MEMLOCK", 0),
        ("MSGQUEUE", 0),
    ):
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))
    seconds = int(limits["cpu_s"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    if owner is not None:
        os.setgroups([])
        os.setresgid(owner, owner, owner)
        os.setresuid(owner, owner, owner)
    kernel.die_with_parent()  # a change of user resets it
    kernel.no_new_privileges()
    if protect["readable"] is not None:
        kernel.landlock(protect["readable"], [job["root"], "/dev/null", "/dev/zero"])
    if protect["filter"]:
        kernel.filter_calls(sockets=protect["sockets"])


class OutputStream:
    """The output of a pipe: the first bytes, the last bytes and the total."""

    def __init__(self, keep: int) -> None:
        self.half = max(1, keep // 2)
        self.head, self.tail, self.total = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self.total += len(data)
        room = self.half - len(self.head)
        self.head += data[:room]
        self.tail += data[room:] if room > 0 else data
        del self.tail[: -self.half]

    def as_dict(self) -> dict[str, Any]:
        """For the answer, in base64: output may be any bytes."""
        texts = (base64.b64encode(part).decode() for part in (self.head, self.tail))
        return {**dict(zip(("head", "tail"), texts, strict=True)), "total": self.total}


class ProgramWatch:
    """Watches a program until it ends or passes a limit."""

    def __init__(self, job: dict[str, Any], child: Child) -> None:
        self.job, self.child, self.limits = job, child, job["limits"]
        keep = self.limits["output"]
        self.out, self.err = OutputStream(keep), OutputStream(keep)
        self.streams = {child.stdout: self.out, child.stderr: self.err}
        self.input = memoryview(base64.b64decode(job["stdin"]))
        self.why: str | None = None
        self.status: int | None = None
        self.memory = 0
        self.open = set(self.streams)
        if not self.input:
            os.close(child.stdin)

    def until_over(self, began: float) -> None:
        """Return when the program has ended or must be ended; `why` is the reason."""
        end, next_look = began + self.limits["wall_s"], began
        while self.why is None:
            now = time.monotonic()
            if now >= next_look:
                self._look()
                next_look = now + max(_EVERY_S, 10 * (time.monotonic() - now))
            if now >= end:
                self.why = "wall"
            if self.why is None:
                self._move(max(0.0, min(next_look, end) - time.monotonic()))
                self._reap()

    def _reap(self) -> None:
        self.status = reap().get(self.child.pid, self.status)
        if self.status is not None:
            self.why = "over"

    def _look(self) -> None:
        use = descendants()
        self.memory = max(self.memory, use.memory)
        times = os.times()
        cpu_s = use.cpu_s + times.children_user + times.children_system
        if use.memory > self.limits["memory"]:
            self.why = "memory"
        elif cpu_s > self.limits["cpu_s"]:
            self.why = "cpu"
        elif use.threads > self.limits["processes"]:
            self.why = "processes"
        elif self._full():
            self.why = "scratch"

    def _full(self) -> bool:
        """Whether the folder holds too much; a file system of its own limits its bytes itself."""
        root, limits = self.job["root"], self.limits
        if self.job["protect"]["sized"]:
            found = os.statvfs(root)
            return found.f_files - found.f_ffree > limits["files"]
        total, count = used(root)
        return total > limits["scratch"] or count > limits["files"]

    def _move(self, wait_s: float) -> None:
        """Move bytes out of the program and into it, for at most `wait_s`."""
        writing = [self.child.stdin] if self.input else []
        readable, writable, _ = select.select([0, *self.open], writing, [], wait_s)
        if 0 in readable:
            end_all(self.job["owner"])
            os._exit(1)  # the caller is gone
        for stream in readable:
            self._take(stream)
        if writable:
            self._give()

    def _take(self, stream: int) -> bool:
        try:
            data = os.read(stream, 1 << 16)
        except BlockingIOError:
            return False
        if data:
            self.streams[stream].add(data)
        else:
            self.open.discard(stream)
        return bool(data)

    def _give(self) -> None:
        try:
            self.input = self.input[os.write(self.child.stdin, self.input[: 1 << 16]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.input = self.input[:0]
        if not self.input:
            os.close(self.child.stdin)

    def drain(self) -> None:
        """Read what dead processes left in their pipes."""
        for stream in tuple(self.open):
            while self._take(stream):
                pass
