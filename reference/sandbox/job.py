"""A job for the sandbox and its outcome: the command, its files, its limits; how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import Field

from reference.sandbox.inside.files import Entry
from twin.errors import Problem, UsageError
from twin.spec.base import Bytes, Count, Duration, Spec

Files = Mapping[str, str | bytes | Entry]
"""Files by path below the working folder; an `Entry` may also be a link or a folder."""
PYTHON = "python"
"""As the first word of a command: the interpreter inside the sandbox."""
_MAIN = "main.py"


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments, input and files, and the files to return."""

    words: tuple[str, ...]
    stdin: bytes = b""
    files: Files = field(default_factory=dict[str, "str | bytes | Entry"])
    keep: tuple[str, ...] = ()
    """Patterns of paths to return afterwards; `*` stands for any text, `/` included."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Beside `PATH`, `HOME`, `TMPDIR`, `LANG`; the caller's environment is not passed on."""


def python_text(text: str, files: Files | None = None, **others: object) -> Command:
    """Python text as a command: `main.py`, run in its folder."""
    made = Command((PYTHON, "-s", "-B", _MAIN), files={**(files or {}), _MAIN: text})
    return replace(made, **others)  # type: ignore[arg-type]  # the class checks them


def entries(files: Files) -> dict[str, Entry]:
    """The files as entries. Raises UsageError (TW540) for a path that leaves its folder."""
    made: dict[str, Entry] = {}
    for path, value in files.items():
        if not _is_below(path):
            message = f"`{path}` is no path below a folder"
            fix = "write a relative path, without `..` and doubled slashes"
            raise UsageError([Problem("TW540", "sandbox.files", message, fix)])
        data = value.encode() if isinstance(value, str) else value
        made[path] = data if isinstance(data, Entry) else Entry("file", data)
    return made


def _is_below(path: str) -> bool:
    parts = PurePosixPath(path).parts
    written = bool(parts) and "/".join(parts) == path and "\0" not in path
    return written and not path.startswith("/") and ".." not in parts


class RunLimits(Spec):
    """Limits of one run. A run that passes a limit is ended, or its request is refused."""

    cpu: Annotated[Duration, Field(gt=0)] = 10.0
    """CPU seconds of all its processes together"""
    wall: Annotated[Duration, Field(gt=0)] = 20.0
    """seconds from start to end"""
    memory: Annotated[Bytes, Field(ge=2**24)] = 512 * 2**20
    """address space of each process, and resident bytes of all together, beside the scratch
    folder"""
    processes: Count = 64
    """processes and threads at one time"""
    open_files: Annotated[Count, Field(ge=16)] = 256
    """open files of a process"""
    file_size: Bytes = 32 * 2**20
    """bytes of one file"""
    scratch: Annotated[Bytes, Field(ge=2**16)] = 64 * 2**20
    """bytes of all files in its folder"""
    files: Annotated[Count, Field(ge=16)] = 4096
    """files, folders and links in its folder"""
    output: Annotated[Bytes, Field(ge=2)] = 64 * 2**10
    """bytes kept of stdout and of stderr: the first half and the last half; all bytes are
    counted"""


Ended = Literal["exit", "signal", "cpu", "wall", "memory", "processes", "scratch"]
"""By itself, by a signal, or by the limit of that name."""


@dataclass(frozen=True, slots=True)
class Output:
    """One stream: its first and last bytes, and the total number of bytes."""

    head: bytes
    tail: bytes
    total: int

    @property
    def text(self) -> str:
        """As text, with a line in place of the bytes left out."""
        missing = self.total - len(self.head) - len(self.tail)
        if missing <= 0:
            return (self.head + self.tail).decode(errors="replace")
        shown = [part.decode(errors="replace") for part in (self.head, self.tail)]
        return f"\n[... {missing:,} bytes left out ...]\n".join(shown)


@dataclass(frozen=True, slots=True)
class Used:
    """What a run used; it varies between runs, so comparisons of outcomes ignore it."""

    wall_s: float
    cpu_s: float
    memory: int
    """Largest resident bytes that were seen."""
    left: int
    """Processes still alive at the end; they were killed."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A finished run; all its processes are dead."""

    ended: Ended
    code: int | None
    """The exit code, if it ended by itself."""
    signal: int | None
    """The signal's number, if a signal ended it."""
    stdout: Output
    stderr: Output
    files: Mapping[str, Entry]
    """The files in its folder that match the command's `keep`, by path."""
    left_out: int
    """Things in its folder that cannot be returned: sockets, names that are not text, excess."""
    used: Used = field(compare=False)

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.code == 0

    @property
    def report(self) -> str:
        """The output; after a failure also the error stream and how the run ended."""
        if self.ok:
            return self.stdout.text
        how = f"limit: {self.ended}"
        if self.ended in ("exit", "signal"):
            how = f"exit code {self.code}" if self.signal is None else "a signal"
        return f"{self.stdout.text}{self.stderr.text}\n[ended by {how}]"

    def read(self, path: str) -> bytes | None:
        """The bytes of a returned file; None for a link, a folder, or nothing."""
        return file_bytes(self.files, path)


def file_bytes(files: Mapping[str, Entry], path: str) -> bytes | None:
    """The bytes of a file; None for a link, a folder, or nothing."""
    entry = files.get(path)
    return entry.data if entry is not None and entry.kind == "file" else None
