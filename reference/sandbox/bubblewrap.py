"""Untrusted code under bubblewrap: its own file system, with only what it needs in it.

Source: bwrap(1), bubblewrap 0.8. The caller's root gives each run a user of its own, since limits
on processes do not hold for root even inside a user namespace; anybody else gets one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from reference.sandbox.inside import kernel
from reference.sandbox.isolation import (
    INSIDE,
    SETTINGS,
    SYSTEM,
    Guarantees,
    Isolation,
    RunPlace,
    own_python,
    own_user,
    python_folders,
    supervisor,
)
from reference.sandbox.job import RunLimits

ROOT = "/work"
_SUPERVISOR = "/supervisor"
_KEPT = ("SETUID", "SETGID", "KILL", "CHOWN", "FOWNER", "DAC_OVERRIDE", "DAC_READ_SEARCH")
"""Capabilities of root's supervisor: to become the run's user, to end it, to read what it left."""

_HELD = Guarantees(
    no_network="a network namespace",
    no_host_sockets="no socket of the host is in its file system; a network namespace",
    read_only_system="read-only mounts",
    hidden_files="a file system of its own",
    own_processes="a process namespace",
    hidden_processes="a process namespace",
    no_new_privileges="no_new_privs",
    no_namespaces="seccomp" if kernel.filters() else "",
    nothing_outlives="a process namespace, which ends with its first process",
    dies_with_caller="PR_SET_PDEATHSIG",
    sized_scratch="a tmpfs of that size; files are counted 50 times a second",
    bounded_processes="RLIMIT_NPROC, and counted 50 times a second",
    bounded_memory="RLIMIT_AS for each process, and counted 50 times a second",
)


def bubblewrap(limits: RunLimits) -> Isolation | None:
    """The isolation, where the program `bwrap` is installed; a run says whether it works."""
    program = shutil.which("bwrap")
    if program is None:
        return None
    python = own_python()
    return Isolation("bubblewrap", _HELD, str(python), partial(_place, program, python, limits))


@contextmanager
def _place(
    program: str, python: Path, limits: RunLimits, readable: Sequence[str]
) -> Iterator[RunPlace]:
    with own_user() as owner:
        size = str(int(limits.scratch))
        words = [program, "--die-with-parent", "--new-session", "--clearenv", "--as-pid-1"]
        words += [f"--unshare-{kind}" for kind in ("ipc", "pid", "net", "uts", "cgroup-try")]
        words += ["--cap-drop", "ALL"]
        if owner is None:
            words += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
        else:
            words += [word for name in _KEPT for word in ("--cap-add", f"CAP_{name}")]
        for path in SYSTEM:
            words += _system(path)
        for path in (*SETTINGS, *python_folders(python), *readable):
            words += [*_folders(path), "--ro-bind-try", path, path]
        words += ["--ro-bind", str(INSIDE), f"{_SUPERVISOR}/reference/sandbox/inside"]
        words += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
        words += ["--perms", "1777", "--size", size, "--tmpfs", "/dev/shm"]
        words += ["--perms", "0700", "--size", size, "--tmpfs", ROOT]
        if not any(Path(path).is_relative_to("/tmp") for path in readable):
            words += ["--symlink", f"{ROOT[1:]}/.tmp", "/tmp"]
        words += ["--remount-ro", "/", "--chdir", "/", "--"]
        protect = {
            "namespaces": 0,
            "readable": None,
            "filter": kernel.filters(),
            "sockets": True,
            "sized": True,
        }
        command = (*words, *supervisor(str(python), _SUPERVISOR))
        yield RunPlace(command, ROOT, owner, protect)


def _folders(path: str) -> list[str]:
    """The folders above, which the run's user may enter, whatever they are outside."""
    above = [str(folder) for folder in reversed(Path(path).parents) if str(folder) != "/"]
    return [word for folder in above for word in ("--perms", "0755", "--dir", folder)]


def _system(path: str) -> list[str]:
    if Path(path).is_symlink():
        return ["--symlink", os.readlink(path), path]  # noqa: PTH115  the target as it is written
    return ["--ro-bind-try", path, path]
