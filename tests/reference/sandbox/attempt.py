"""Attempts to get out of the sandbox, and what there is outside to reach; each must fail.

Every attempt says `tried` first, so that none passes because it never ran, and `ESCAPED` if it got
out; what cannot be seen from inside is looked at from outside. Where the isolation does not give
the guarantee that stops an attempt, the attempt is an expected failure under that name. Attempts
that leave their process alone share a run in the default tests, each in a process of its own;
`slow` gives all of them runs of their own.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reference.sandbox.isolation import Isolation
from reference.sandbox.job import RunLimits, RunOutcome, python_text
from reference.sandbox.run import run

_BEGIN = """
import ctypes, os, signal, socket, subprocess, sys, threading, time
outside, marker = os.environ["OUTSIDE"], os.environ["MARKER"]
def escaped(how=""):
    print("ESCAPED", how, flush=True)
def attempt(action, *words):
    try:
        found = action(*words)
    except (OSError, MemoryError, RuntimeError):
        return
    if found not in (-1, b"", ""):
        escaped(found)
"""
_SHARED = """
for name, text in ATTEMPTS.items():
    pid = os.fork()
    if pid == 0:
        try:
            print("tried", name, flush=True)
            exec(text)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
"""
SLEEPER = '[sys.executable, "-c", "import time; time.sleep(60)", marker]'


@dataclass(frozen=True)
class Attempt:
    """A way out, the guarantee that closes it, and how the run may end."""

    name: str
    needs: str
    code: str
    ended: tuple[str, ...] = ("exit",)
    alone: bool = False
    """Whether it ends, fills or aims at what others in its run would need."""
    limits: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds, where it may have less than the others."""
    slow: bool = False
    """Whether only `make verify` tries it."""


def lines(needs: str, **codes: str) -> list[Attempt]:
    """Attempts of a line or two by name, all closed by one guarantee."""
    return [Attempt(name, needs, code) for name, code in codes.items()]


def apart(attempts: Sequence[Attempt]) -> list[object]:
    """Parameters of a test that gives each attempt a run of its own."""
    quick = [one.alone and not one.slow for one in attempts]
    marks = [() if one else pytest.mark.slow for one in quick]
    return [
        pytest.param(one, id=one.name, marks=mark)
        for one, mark in zip(attempts, marks, strict=True)
    ]


def check_apart(
    attempt: Attempt,
    isolation: Isolation,
    limits: RunLimits,
    outside: Path,
    request: pytest.FixtureRequest,
) -> None:
    """The attempt fails in a run of its own."""
    if attempt.needs in isolation.guarantees.missing():
        reason = f"{isolation.kind} on this machine: not guaranteed: {attempt.needs}"
        request.applymarker(pytest.mark.xfail(reason=reason, strict=False))
    text = f"{_BEGIN}print('tried', flush=True)\n{attempt.code}"
    less = limits.model_copy(update=attempt.limits)
    outcome = _tried(text, isolation, less, outside)
    assert outcome.stdout.text.startswith("tried"), outcome.stderr.text
    assert "ESCAPED" not in outcome.stdout.text
    assert outcome.ended in attempt.ended, outcome
    if attempt.name == "huge_output":
        assert outcome.stdout.total == len("tried\n") + 1600 * 65536
    if attempt.name == "killing_the_parent":
        assert "alive" in outcome.stdout.text


def check_together(
    attempts: Sequence[Attempt], isolation: Isolation, limits: RunLimits, outside: Path
) -> None:
    """All attempts fail that can share a run, and that the isolation guarantees to stop."""
    missing = isolation.guarantees.missing()
    shared = {one.name: one.code for one in attempts if not (one.alone or one.needs in missing)}
    outcome = _tried(f"{_BEGIN}ATTEMPTS = {shared!r}\n{_SHARED}", isolation, limits, outside)
    said = outcome.stdout.text.split("tried ")[1:]
    assert [one.split("\n")[0] for one in said] == list(shared), outcome.stderr.text
    out = [one for one in said if "ESCAPED" in one]
    assert not out, "".join(out)
    assert outcome.ended == "exit", outcome


def _tried(text: str, isolation: Isolation, limits: RunLimits, outside: Path) -> RunOutcome:
    """The outcome of a run that tries to get out; outside, nothing came of it."""
    marker = f"marker-{os.getpid()}-{outside.name}"
    with _host(outside, marker) as (port, reached):
        environment = {"OUTSIDE": str(outside), "MARKER": marker, "PORT": str(port)}
        command = python_text(text, environment=environment, keep=("*",))
        readable = [str(outside / "id")] if "/id" in text else []
        outcome = run(command, limits, isolation=isolation, readable=readable)
        try:
            assert not alive(marker), "it outlived its run"
        finally:
            end(marker)
        assert not reached(), "it reached a socket of the host"
    _judge(outcome, outside, marker)
    return outcome


def _judge(outcome: RunOutcome, outside: Path, marker: str) -> None:
    """Nothing outside changed, nothing of it came in, and nothing is left on the disk."""
    assert outcome.used.wall_s < 6
    assert (outside / "public").read_text() == "public words"
    assert (outside / "public").stat().st_mode & 0o777 == 0o644
    assert [(outside / name).stat().st_mtime for name in ("public", "shared")] == [1, 1]
    assert not os.listxattr(outside / "shared")
    assert sorted(one.name for one in outside.iterdir()) == sorted(_OUTSIDE)
    assert all(b"words" not in one.data for path, one in outcome.files.items() if path != "main.py")
    assert not any(path.startswith("core") for path in outcome.files)
    assert not list(Path("/usr").glob(f"{marker}*"))
    assert sum(len(one.data) for one in outcome.files.values()) <= 1 << 20
    assert len(outcome.stdout.head) + len(outcome.stdout.tail) <= 4096


_OUTSIDE = ("id", "public", "secret", "shared", "socket")
"""What stands outside before a run, and after it."""


@contextmanager
def _host(outside: Path, marker: str) -> Iterator[tuple[int, Callable[[], bool]]]:
    """What there is to reach: secrets, sockets, a process, a file that is open for children."""
    (outside / "public").write_text("public words")
    (outside / "public").chmod(0o644)
    (outside / "shared").write_text("shared words")
    (outside / "shared").chmod(0o666)
    for name in ("public", "shared"):
        os.utime(outside / name, (1, 1))
    (outside / "secret").write_text("secret words")
    (outside / "secret").chmod(0o600)
    shutil.copy("/usr/bin/id", outside / "id")
    (outside / "id").chmod(0o4755)
    hidden = subprocess.Popen(["/bin/sleep", "77"], env={"HIDDEN": "hidden words"})
    spare = os.open(outside / "secret", os.O_RDONLY)
    os.set_inheritable(spare, True)
    tcp, udp = socket.create_server(("127.0.0.1", 0)), socket.socket(type=socket.SOCK_DGRAM)
    local, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    try:
        port = tcp.getsockname()[1]
        udp.bind(("127.0.0.1", port))
        os.chdir(outside)  # names of sockets are short
        local.bind("socket")
        os.chdir(here)
        (outside / "socket").chmod(0o777)
        abstract.bind(f"\0{marker}")
        for one in (tcp, udp, local, abstract):
            one.setblocking(False)
        for one in (local, abstract):
            one.listen()
        yield port, lambda: any(map(_was_reached, (tcp, udp, local, abstract)))
    finally:
        os.chdir(here)
        for one in (tcp, udp, local, abstract):
            one.close()
        os.close(spare)
        hidden.kill()
        hidden.wait()


def _was_reached(one: socket.socket) -> bool:
    try:
        if one.type == socket.SOCK_DGRAM:
            return bool(one.recv(10))
        one.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def alive(marker: str) -> list[int]:
    """Processes of the machine that carry the marker among their arguments."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and marker.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def end(marker: str) -> None:
    for pid in alive(marker):
        os.kill(pid, 9)
