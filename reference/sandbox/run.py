"""Run untrusted code, one or hundreds at once, and say what came of it.

Threads, not asyncio: a run is a process to wait for, callers are loops over tasks, and a worker
that waits costs nothing. The thread that starts a process waits for it, since the kernel ends the
process with that thread.
"""

from __future__ import annotations

import base64
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from reference.sandbox.bubblewrap import bubblewrap
from reference.sandbox.command import PYTHON, Command, code, entries
from reference.sandbox.inside.wire import Entry, packed, unpacked
from reference.sandbox.isolation import Isolation, Place
from reference.sandbox.limits import Limits
from reference.sandbox.outcome import Outcome, Output, Used
from reference.sandbox.plain import plain
from twin.errors import Problem, TwinError, UsageError

_GRACE_S = 120.0
"""Seconds beyond a run's own bound after which its supervisor itself is given up. Its clock starts
late where hundreds begin at one time: 300 on two busy cores took more than half a minute."""
_SOME_LIMITS = Limits()


def run(
    command: Command,
    limits: Limits = _SOME_LIMITS,
    *,
    isolation: Isolation | None = None,
    readable: Sequence[str] = (),
) -> Outcome:
    """What came of the command; whatever it does is an outcome and no exception.

    `readable` are paths outside that it may read. Raises UsageError where this machine cannot give
    what the isolation promises: then nothing has run (TW541).
    """
    chosen = isolation or best(limits)
    files = entries(command.files)
    with chosen.open(readable) as place:
        header = _job(command, limits, place, chosen.python)
        # The protections must not be had for less than was promised.
        answer, kept = _ask(place.command, packed(header, files.items()), limits)
    if "error" in answer:
        fix = "`python -m reference.sandbox --probe` says what this machine can do"
        raise UsageError([Problem("TW541", "sandbox", answer["error"], fix)])
    return _outcome(answer, kept)


def run_many(
    commands: Iterable[Command],
    limits: Limits = _SOME_LIMITS,
    *,
    at_once: int | None = None,
    isolation: Isolation | None = None,
    progress: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """The outcomes in the order of the commands, of which so many run at one time (the number of
    CPUs, if not given) and the others wait; `progress` is called with each as it ends."""
    chosen = isolation or best(limits)

    def one(command: Command) -> Outcome:
        outcome = run(command, limits, isolation=chosen)
        if progress is not None:
            progress(outcome)
        return outcome

    with ThreadPoolExecutor(at_once or os.cpu_count() or 1, "sandbox") as pool:
        return list(pool.map(one, commands))


def best(limits: Limits = _SOME_LIMITS) -> Isolation:
    """Bubblewrap, where it is installed and works; otherwise what this machine has without it."""
    wrapped = bubblewrap(limits)
    if wrapped is not None and _works(os.environ.get("PATH", "")):
        return wrapped
    return plain()


@cache
def _works(path: str) -> bool:
    """Whether bubblewrap, as it is found on this search path, runs anything here."""
    del path
    wrapped = bubblewrap(Limits())
    if wrapped is None:
        return False
    try:
        return run(code("print('here')"), isolation=wrapped).stdout.text == "here\n"
    except TwinError:
        return False


def _job(command: Command, limits: Limits, place: Place, python: str) -> dict[str, Any]:
    words = [python if word == PYTHON and not at else word for at, word in enumerate(command.words)]
    own = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": place.root,
        "TMPDIR": f"{place.root}/.tmp",
        "LANG": "C.UTF-8",
    }
    return {
        "argv": words,
        "environment": {**own, **command.environment},
        "folder": place.root,
        "root": place.root,
        "owner": place.owner,
        "protect": dict(place.protect),
        "stdin": base64.b64encode(command.stdin).decode(),
        "keep": list(command.keep),
        "limits": {
            "cpu_s": limits.cpu,
            "wall_s": limits.wall,
            "memory": int(limits.memory),
            "processes": limits.processes,
            "open_files": limits.open_files,
            "file_size": int(limits.file_size),
            "scratch": int(limits.scratch),
            "files": limits.files,
            "output": int(limits.output),
        },
    }


def _ask(
    command: Sequence[str], message: bytes, limits: Limits
) -> tuple[dict[str, Any], dict[str, Entry]]:
    """The supervisor's answer, or an `error` where none came."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env={}, cwd="/")
    assert process.stdin is not None
    with process:
        try:
            process.stdin.write(message)
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it ended early, and says why
        said, complained = _read_both(process, time.monotonic() + limits.wall + _GRACE_S)
        process.kill()
    try:
        return unpacked(said)
    except (ValueError, KeyError, IndexError):
        told = complained.decode(errors="replace").strip() or f"code {process.returncode}"
        return {"error": f"the supervisor ended without an answer: {told}"}, {}


def _read_both(process: subprocess.Popen[bytes], end: float) -> tuple[bytes, bytes]:
    """All that it says until it has closed both streams, or time is up."""
    assert process.stdout is not None
    assert process.stderr is not None
    parts: Mapping[int, bytearray] = {
        process.stdout.fileno(): bytearray(),
        process.stderr.fileno(): bytearray(),
    }
    with selectors.DefaultSelector() as selector:
        for stream in parts:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() and (left := end - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                data = os.read(key.fd, 1 << 20)
                parts[key.fd].extend(data)
                if not data:
                    selector.unregister(key.fd)
    said, complained = parts.values()
    return bytes(said), bytes(complained)


def _outcome(answer: Mapping[str, Any], kept: Mapping[str, Entry]) -> Outcome:
    status, why = answer["status"], answer["ended"]
    code_ = signal_ = None
    if why == "over":
        if os.WIFSIGNALED(status):
            signal_ = os.WTERMSIG(status)
            why = "cpu" if signal_ == 24 else "signal"  # SIGXCPU, by RLIMIT_CPU
        else:
            code_, why = os.WEXITSTATUS(status), "exit"
    used = Used(answer["wall_s"], answer["cpu_s"], answer["memory"], answer["left"])
    out, err = _output(answer["stdout"]), _output(answer["stderr"])
    return Outcome(why, code_, signal_, out, err, kept, answer["left_out"], used)


def _output(row: Mapping[str, Any]) -> Output:
    head, tail = (base64.b64decode(row[name]) for name in ("head", "tail"))
    return Output(head, tail, row["total"])
