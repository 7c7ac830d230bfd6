"""What every source of measurements answers with, and how files are looked at without trusting
them: a head for recognition, lines in bounded memory."""

from __future__ import annotations

import gzip
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar, Final, Literal, cast

from twin.evidence.calibrate.columns import StepRow
from twin.evidence.calibrate.kernels import Kernel
from twin.loading.files import opened

HEAD: Final = 1 << 20
"""Bytes of a file by which it is recognised."""
LONGEST: Final = 20_000
"""Bytes of a line that are looked at; the rest of it is passed over."""
MOST: Final = 64_000_000_000
"""Bytes of a file, which is read in pieces: OURS, beyond all that profilers write."""
_GZIP: Final = b"\x1f\x8b"
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

Unit = Literal["s", "B/s", "count"]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured number: what was done, bytes of it, among how many ranks on how many nodes, the
    value in its SI unit, and where it stands (what shares a `where` shares its run)."""

    what: str
    size: float
    ranks: int
    nodes: int
    value: float
    unit: Unit
    where: str


@dataclass(frozen=True, slots=True)
class Findings:
    """What a source took from one file, and what it could not use, in words; the GPU in the file's
    own words where it names one; step times that are the file's scenario's (`logged`)."""

    took: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    device: str = ""
    measurements: tuple[Measurement, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    rows: tuple[StepRow, ...] = ()


class Source(ABC):
    """One format of files with measurements."""

    words: ClassVar[str]
    """What the report calls the format."""

    @abstractmethod
    def recognises(self, head: bytes) -> bool:
        """Whether a file that begins so (unpacked, at most `HEAD` bytes) is of this format."""

    @abstractmethod
    def read(self, path: Path) -> Findings:
        """The measurements in a file. Raises `TwinError` or `OSError` where it is damaged."""


def head(path: Path) -> bytes:
    """The first bytes of a file, unpacked. Raises `OSError`."""
    with _unpacked(path) as file:
        return _piece(lambda: file.read(HEAD))


def plain(text: bytes) -> str:
    """Text without colours, whatever is none of it replaced."""
    return _COLOUR.sub("", text.decode("utf-8", "replace"))


def packed(path: Path) -> bool:
    """Whether a file is packed by gzip. Raises `OSError`."""
    with opened(path, MOST) as raw:
        return raw.read(2) == _GZIP


def lines(path: Path) -> Iterator[str]:
    """The lines of a file without colours, long ones cut. Raises `OSError`; a file that was packed
    and torn ends where it is torn."""
    with _unpacked(path) as file:
        while line := _piece(lambda: file.readline(LONGEST)):
            rest = line
            while not rest.endswith(b"\n") and len(rest) == LONGEST:
                rest = _piece(lambda: file.readline(LONGEST))  # of a long line
            yield plain(line).rstrip("\r\n")


def _piece(read: Callable[[], bytes]) -> bytes:
    """What is read; nothing behind the place where a packed file is torn."""
    try:
        return read()
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return b""


@contextmanager
def _unpacked(path: Path) -> Generator[BinaryIO]:
    with opened(path, MOST) as raw:
        is_packed = raw.read(2) == _GZIP
        raw.seek(0)
        if not is_packed:
            yield raw
            return
        with gzip.open(raw) as file:
            yield cast(BinaryIO, file)
