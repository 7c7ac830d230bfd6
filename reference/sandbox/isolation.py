"""Isolation of untrusted code: a place to run in, and the guarantees that it gives.

Under bubblewrap (bwrap(1), 0.8) it has its own file system, with only what it needs in it. The
caller's root gives each run a user of its own, since limits on processes do not hold for root even
inside a user namespace; anybody else gets one.

Without bubblewrap (`plain`) it has what the kernel gives to a process that asks for it. Each
protection is tried once in a process of its own. What works is used, and demanded of every run;
what does not is a guarantee that is not given. Weaker than bubblewrap in that the names of files
outside stay visible to lookups, and no address of this machine can be used for tests.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from reference.sandbox.cgroup import MemoryGroup, memory_group, parent
from reference.sandbox.inside import kernel
from reference.sandbox.job import RunLimits
from twin.errors import Problem, UsageError

_SOME_LIMITS = RunLimits()
PACKAGE_ROOT = Path(__file__).parents[2]
"""The folder from which `reference` is imported."""
INSIDE = Path(__file__).parent / "inside"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Folders of programs and libraries, where the system has them; links stay links inside."""
SETTINGS = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/mime.types")
"""Other files that programs need to start."""
USERS = range(61184, 65520)
"""User ids for runs of root: the range of systemd's DynamicUser, which no account has
(systemd.exec(5))."""


@dataclass(frozen=True, slots=True)
class Guarantees:
    """The guarantees for untrusted code, each as the name of what enforces it; empty: it does not
    hold on this machine."""

    no_network: str
    """It reaches no host, not even this one."""
    no_host_sockets: str
    """It connects to no Unix socket of a process outside."""
    read_only_system: str
    """It changes no file outside its folder."""
    hidden_files: str
    """It reads no file outside its folder but programs, libraries and what the caller names."""
    own_processes: str
    """It sends no signal to a process outside, and traces none."""
    hidden_processes: str
    """It sees no process outside, with its arguments and environment."""
    no_new_privileges: str
    """Set-user-id programs give it nothing."""
    no_namespaces: str
    """It makes no namespace, in which it would be root: kernels have had such holes."""
    nothing_outlives: str
    """None of its processes lives on when the run is over."""
    dies_with_caller: str
    """Its processes end with the caller."""
    sized_scratch: str
    """The bytes and files of its folder are limited."""
    few_calls: str
    """It makes the system calls of a list, and no other one of the kernel."""
    bounded_processes: str
    bounded_memory: str
    """What its processes map has a limit, each alone and all together."""
    bounded_unmapped_memory: str
    """So have pages that no process maps, and buffers of pipes and sockets."""

    def missing(self) -> tuple[str, ...]:
        """The names of the guarantees that do not hold."""
        names = (guarantee.name for guarantee in fields(self))
        return tuple(name for name in names if not getattr(self, name))


@dataclass(frozen=True, slots=True)
class RunPlace:
    """The place of one run."""

    command: tuple[str, ...]
    """Starts the supervisor."""
    root: str
    """The path of the scratch folder inside."""
    owner: int | None
    """The user id of the code; None: the caller's."""
    protect: Mapping[str, Any]
    """The protections that the supervisor sets up."""
    group: MemoryGroup | None = None
    entrance: int | None = None
    """The open file by which the program enters its cgroup."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """One way to isolate untrusted code, with its guarantees on this machine."""

    kind: Literal["bubblewrap", "plain"]
    guarantees: Guarantees
    python: str
    """The interpreter inside."""
    open: Callable[[Sequence[str]], AbstractContextManager[RunPlace]]
    """Opens a place for one run; files below these paths are readable, too."""


def supervisor(python: str, package_root: str, module: str = "supervise") -> tuple[str, ...]:
    """The command that runs `main` of a module of `inside`, which loads only its own folder."""
    code = (
        f"import sys; sys.path.insert(0, {package_root!r}); "
        f"from reference.sandbox.inside.{module} import main; main()"
    )
    return (python, "-I", "-S", "-B", "-c", code)


def own_python() -> Path:
    """The interpreter of this process, outside of its virtual environment."""
    return Path(sys.executable).resolve()


def python_folders(python: Path) -> tuple[str, ...]:
    """The folders that an interpreter needs beyond the system's."""
    prefix = python.parent.parent
    return () if prefix == Path("/usr") else (str(prefix),)


@contextmanager
def own_user() -> Iterator[int | None]:
    """A user id for one run; None if the caller is not root.

    Binding a name in the abstract namespace of Unix sockets reserves the id; the kernel frees it
    with its process. Callers in different network namespaces do not see each other's ids.
    """
    if os.geteuid() != 0:
        yield None
        return
    for user in USERS:
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            held.bind(f"\0twin-sandbox-user-{user}")
        except OSError:
            held.close()
            continue
        try:
            yield user
        finally:
            held.close()
        return
    message = f"all {len(USERS)} users for untrusted code are taken"
    raise UsageError([Problem("TW543", "sandbox", message, "run fewer at one time")])


ROOT = "/work"
_SUPERVISOR = "/supervisor"
_KEPT = ("SETUID", "SETGID", "KILL", "CHOWN", "FOWNER", "DAC_OVERRIDE", "DAC_READ_SEARCH")
"""Capabilities of root's supervisor: to become the run's user, to end it, to read what it left."""

_COUNTED = "RLIMIT_AS for each process, and counted 50 times a second"


def _grouped() -> str:
    return "a memory cgroup" if parent() is not None else ""


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
    few_calls="seccomp" if kernel.filters() else "",
    bounded_memory=_COUNTED,
    bounded_unmapped_memory="",  # `bubblewrap` looks
)


def bubblewrap(limits: RunLimits) -> Isolation | None:
    """The isolation, where the program `bwrap` is installed; a run says whether it works."""
    program = shutil.which("bwrap")
    if program is None:
        return None
    python = own_python()
    held = replace(_HELD, bounded_unmapped_memory=_grouped())
    return Isolation("bubblewrap", held, str(python), partial(_wrapped, program, python, limits))


@contextmanager
def _wrapped(
    program: str, python: Path, limits: RunLimits, readable: Sequence[str]
) -> Iterator[RunPlace]:
    with own_user() as owner, _group(limits) as (group, entrance):
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
        yield RunPlace(command, ROOT, owner, protect, group, entrance)


@contextmanager
def _group(limits: RunLimits) -> Iterator[tuple[MemoryGroup | None, int | None]]:
    """A cgroup of the memory and the scratch folder of a run, where this user may make one."""
    with memory_group(int(limits.memory + limits.scratch)) as made:
        yield made or (None, None)


def _folders(path: str) -> list[str]:
    """The folders above, which the run's user may enter, whatever they are outside."""
    above = [str(folder) for folder in reversed(Path(path).parents) if str(folder) != "/"]
    return [word for folder in above for word in ("--perms", "0755", "--dir", folder)]


def _system(path: str) -> list[str]:
    if Path(path).is_symlink():
        return ["--symlink", os.readlink(path), path]  # noqa: PTH115  the target as it is written
    return ["--ro-bind-try", path, path]


_DEVICES = ("/dev/urandom", "/dev/random", "/dev/full")


@dataclass(frozen=True, slots=True)
class Means:
    """What this kernel lets this user do."""

    root: bool
    namespaces: int
    landlock: int
    """Its version; 0: none."""
    filter: bool
    groups: bool = False
    """Whether cgroups can be made; found in this process, not in one of its own."""


def plain(means: Means | None = None, limits: RunLimits = _SOME_LIMITS) -> Isolation:
    """The isolation by whatever this machine has, or by less, if `means` says so. Raises
    UsageError where no interpreter can be used by the user that the code runs as (TW542)."""
    means, python = means or _means(), _python()
    return Isolation("plain", _held(means), str(python), partial(_place, means, python, limits))


@cache
def _means() -> Means:
    command = supervisor(str(own_python()), str(PACKAGE_ROOT), "kernel")
    done = subprocess.run(command, check=True, capture_output=True, env={}, timeout=60)
    found = json.loads(done.stdout)
    return Means(root=os.geteuid() == 0, groups=parent() is not None, **found)


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
        # Landlock does not see changes of mode, owner and times.
        read_only_system="read-only mounts" if mounts else "",
        hidden_files=landlock,
        own_processes=processes or user or signals,
        hidden_processes=processes or landlock,
        no_new_privileges="no_new_privs",
        no_namespaces="seccomp" if means.filter else "",
        nothing_outlives=processes or (user and f"{user}, all of whose processes are killed"),
        dies_with_caller="the supervisor, when its input ends",
        sized_scratch="a tmpfs of that size" if mounts else "",
        bounded_processes="RLIMIT_NPROC" if means.root or means.namespaces else "",
        few_calls="seccomp" if means.filter else "",
        bounded_memory=_COUNTED,
        bounded_unmapped_memory=_grouped() if means.groups else "",
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
def _place(
    means: Means, python: Path, limits: RunLimits, readable: Sequence[str]
) -> Iterator[RunPlace]:
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
        grouped = _group(limits) if means.groups else nullcontext((None, None))
        with own_user() as owner, grouped as (group, entrance):
            command = supervisor(str(own_python()), str(PACKAGE_ROOT))
            yield RunPlace(command, folder, owner, protect, group, entrance)
    finally:
        # Untrusted code may leave folders deeper than Python's own removal can follow.
        removed = [shutil.which("rm") or "/bin/rm", "-rf", "--", folder]
        subprocess.run(removed, check=False, stderr=subprocess.DEVNULL)
