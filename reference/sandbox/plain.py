"""Untrusted code without bubblewrap: what the kernel gives to a process that asks for it.

Each protection is tried once in a process of its own. What works is used, and demanded of every
run; what does not is a guarantee that is not given. Weaker than bubblewrap in that the names of
files outside stay visible to lookups, and no address of this machine can be used for tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from reference.sandbox.inside import kernel
from reference.sandbox.isolation import (
    PACKAGE_ROOT,
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
from twin.errors import Problem, UsageError

_DEVICES = ("/dev/urandom", "/dev/random", "/dev/full")


@dataclass(frozen=True, slots=True)
class Means:
    """What this kernel lets this user do."""

    root: bool
    namespaces: int
    landlock: int
    """Its version; 0: none."""
    filter: bool


def plain(means: Means | None = None) -> Isolation:
    """The isolation by whatever this machine has, or by less, if `means` says so. Raises
    UsageError where no interpreter can be used by the user that the code runs as (TW542)."""
    means, python = means or _means(), _python()
    return Isolation("plain", _held(means), str(python), partial(_place, means, python))


@cache
def _means() -> Means:
    command = supervisor(str(own_python()), str(PACKAGE_ROOT), "kernel")
    done = subprocess.run(command, check=True, capture_output=True, env={}, timeout=60)
    return Means(root=os.geteuid() == 0, **json.loads(done.stdout))


def _held(means: Means) -> Guarantees:
    """The guarantees that follow from what works."""
    user, mounts = "a user of its own" if means.root else "", bool(means.namespaces & kernel.MOUNTS)
    network = means.namespaces & kernel.NEW_NETWORK
    sockets = "no socket can be made (seccomp)" if means.filter else ""
    landlock = f"Landlock {means.landlock}" if means.landlock else ""
    processes = "a process namespace" if mounts else ""
    signals = landlock if means.landlock >= 6 else ""  # LANDLOCK_SCOPE_SIGNAL
    return Guarantees(
        no_network=sockets or ("a network namespace" if network else ""),
        no_host_sockets=sockets,
        # Landlock does not see changes of mode and owner: those need another user.
        read_only_system=f"{landlock} and {user}" if landlock and user else "",
        hidden_files=landlock,
        own_processes=processes or user or signals,
        hidden_processes=processes or landlock,
        no_new_privileges="no_new_privs",
        no_namespaces="seccomp" if means.filter else "",
        nothing_outlives=processes or (user and f"{user}, all of whose processes are killed"),
        dies_with_caller="the supervisor, when its input ends",
        sized_scratch="a tmpfs of that size" if mounts else "",
        bounded_processes="RLIMIT_NPROC" if means.root or means.namespaces else "",
        bounded_memory="RLIMIT_AS for each process, and counted 50 times a second",
    )


def _python() -> Path:
    """An interpreter that the run's user can reach: this one, or the system's."""
    candidates = [own_python(), Path("/usr/bin/python3").resolve()]
    for python in candidates:
        if python.exists() and (os.geteuid() != 0 or _reachable(python)):
            return python
    message = f"{candidates[0]} is in a folder that only root may enter"
    fix = "install bubblewrap, or a system-wide Python"
    raise UsageError([Problem("TW542", "sandbox", message, fix)])


def _reachable(path: Path) -> bool:
    """Whether any user may enter all folders above."""
    return all(above.stat().st_mode & 0o001 for above in path.parents)


@contextmanager
def _place(means: Means, python: Path, readable: Sequence[str]) -> Iterator[RunPlace]:
    mounts = bool(means.namespaces & kernel.MOUNTS)
    seen = [*SYSTEM, *SETTINGS, *_DEVICES, *python_folders(python), *readable]
    protect = {
        "namespaces": means.namespaces,
        "readable": [*seen, *(["/proc"] if mounts else [])] if means.landlock else None,
        "filter": means.filter,
        "sockets": not means.filter,
        "sized": mounts,
    }
    folder = tempfile.mkdtemp(prefix="twin-sandbox-")
    try:
        with own_user() as owner:
            command = supervisor(str(own_python()), str(PACKAGE_ROOT))
            yield RunPlace(command, folder, owner, protect)
    finally:
        # Untrusted code may leave folders deeper than Python's own removal can follow.
        removed = [shutil.which("rm") or "/bin/rm", "-rf", "--", folder]
        subprocess.run(removed, check=False, stderr=subprocess.DEVNULL)
