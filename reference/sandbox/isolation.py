"""Isolation of untrusted code: a place to run in, and the guarantees that it gives."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from twin.errors import Problem, UsageError

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
    bounded_processes: str
    bounded_memory: str

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
