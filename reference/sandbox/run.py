"""Run untrusted code: once, many times in parallel, or in a folder over several commands.

Threads, not asyncio: a run waits for a process, callers are loops over tasks, and a waiting thread
costs nothing. The thread that starts a process waits for it, since the kernel ends the process with
that thread.
"""

from __future__ import annotations

import base64
import os
import selectors
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from reference.sandbox.inside.files import Entry, packed, unpacked
from reference.sandbox.isolation import Isolation, RunPlace, bubblewrap, plain
from reference.sandbox.job import (
    PYTHON,
    Command,
    Files,
    Output,
    RunLimits,
    RunOutcome,
    Used,
    entries,
    file_bytes,
    python_text,
)
from twin.errors import Problem, TwinError, UsageError

_GRACE_S = 120.0
"""Seconds beyond a run's own limit before its supervisor is given up. Its clock starts late when
hundreds start together: 300 on two busy cores took more than half a minute."""
_SOME_LIMITS = RunLimits()


def run(
    command: Command,
    limits: RunLimits = _SOME_LIMITS,
    *,
    isolation: Isolation | None = None,
    readable: Sequence[str] = (),
) -> RunOutcome:
    """The outcome of the command; nothing that it does raises an exception.

    `readable` are outside paths that it may read. Raises UsageError (TW541) if this machine cannot
    give what the isolation guarantees; then nothing has run.
    """
    chosen = isolation or best(limits)
    files = entries(command.files)
    with chosen.open(readable) as place:
        header = _job(command, limits, place, chosen.python)
        answer, kept = _ask(place, packed(header, files.items()), limits)
        if place.group is not None and place.group.killed():
            answer["ended"] = "memory"
    if "error" in answer:
        fix = "`python -m reference.sandbox --probe` says what this machine can do"
        raise UsageError([Problem("TW541", "sandbox", answer["error"], fix)])
    return _outcome(answer, kept)


def run_many(
    commands: Iterable[Command],
    limits: RunLimits = _SOME_LIMITS,
    *,
    at_once: int | None = None,
    isolation: Isolation | None = None,
) -> list[RunOutcome]:
    """The outcomes in the order of the commands, `at_once` in parallel [default: the number of
    CPUs]."""
    run_one = partial(run, limits=limits, isolation=isolation or best(limits))
    with ThreadPoolExecutor(at_once or os.cpu_count() or 1, "sandbox") as pool:
        return list(pool.map(run_one, commands))


@dataclass(frozen=True, slots=True)
class Session:
    """A workspace over several commands, as tasks on repositories need it.

    Between commands it is a value and no folder: each command gets the files in a fresh place, and
    they are read back when all its processes are dead. So earlier states stay available, no link
    is followed outside, and the limits hold per command.
    """

    files: Mapping[str, Entry] = field(default_factory=dict[str, Entry])
    limits: RunLimits = field(default_factory=RunLimits)

    def run(self, command: Command) -> tuple[RunOutcome, Session]:
        """The command's outcome, and the workspace after it. The command's own files come first."""
        files: Files = {**self.files, **entries(command.files)}
        whole = replace(command, files=files, keep=("*",))
        outcome = run(whole, self.limits)
        return outcome, replace(self, files=outcome.files)

    def write(self, files: Files) -> Session:
        """The workspace with these files added or replaced."""
        return replace(self, files={**self.files, **entries(files)})

    def read(self, path: str) -> bytes | None:
        """The bytes of a file; None for a link, a folder, or nothing."""
        return file_bytes(self.files, path)


def best(limits: RunLimits = _SOME_LIMITS) -> Isolation:
    """Bubblewrap if it is installed and works; otherwise the kernel's own means."""
    wrapped = bubblewrap(limits)
    if wrapped is not None and _works(os.environ.get("PATH", "")):
        return wrapped
    return plain(limits=limits)


@cache
def _works(path: str) -> bool:
    """Whether the bubblewrap of this search path works here."""
    del path
    wrapped = bubblewrap(RunLimits())
    if wrapped is None:
        return False
    try:
        return run(python_text("print('here')"), isolation=wrapped).stdout.text == "here\n"
    except TwinError:
        return False


def _job(command: Command, limits: RunLimits, place: RunPlace, python: str) -> dict[str, Any]:
    words = [python if word == PYTHON and not at else word for at, word in enumerate(command.words)]
    own = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": place.root,
        "TMPDIR": f"{place.root}/.tmp",
        "LANG": "C.UTF-8",
    }
    sizes = limits.model_dump(exclude={"cpu", "wall"})
    whole = {name: int(size) for name, size in sizes.items()}
    return {
        "argv": words,
        "environment": {**own, **command.environment},
        "folder": place.root,
        "root": place.root,
        "owner": place.owner,
        "protect": dict(place.protect),
        "entrance": place.entrance,
        "stdin": base64.b64encode(command.stdin).decode(),
        "keep": list(command.keep),
        "limits": {"cpu_s": limits.cpu, "wall_s": limits.wall, **whole},
    }


def _ask(
    place: RunPlace, message: bytes, limits: RunLimits
) -> tuple[dict[str, Any], dict[str, Entry]]:
    """The supervisor's answer, or an `error` if there is none."""
    pipe, passed = subprocess.PIPE, () if place.entrance is None else (place.entrance,)
    process = subprocess.Popen(
        place.command, stdin=pipe, stdout=pipe, stderr=pipe, env={}, cwd="/", pass_fds=passed
    )
    assert process.stdin is not None
    with process:
        try:
            process.stdin.write(message)
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it ended early, and its answer says why
        said, complained = _read_both(process, time.monotonic() + limits.wall + _GRACE_S)
        process.kill()
    try:
        return unpacked(said)
    except (ValueError, KeyError, IndexError):
        told = complained.decode(errors="replace").strip() or f"code {process.returncode}"
        return {"error": f"the supervisor ended without an answer: {told}"}, {}


def _read_both(process: subprocess.Popen[bytes], end: float) -> tuple[bytes, bytes]:
    """Both streams until it closes them, or until `end`."""
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


def _outcome(answer: Mapping[str, Any], kept: Mapping[str, Entry]) -> RunOutcome:
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
    return RunOutcome(why, code_, signal_, out, err, kept, answer["left_out"], used)


def _output(row: Mapping[str, Any]) -> Output:
    head, tail = (base64.b64decode(row[name]) for name in ("head", "tail"))
    return Output(head, tail, row["total"])
