"""What every source of measurements answers with, and the lines of a file in bounded memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from twin.evidence.calibrate.columns import StepRow
from twin.evidence.calibrate.kernels import Kernel
from twin.interop.recognise import LONGEST, plain
from twin.loading.files import unpacked

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
    """One way to read files with measurements."""

    reads: ClassVar[tuple[str, ...]]
    """Names of the formats (`twin.interop.recognise`)."""

    @abstractmethod
    def read(self, path: Path) -> Findings:
        """The measurements in a file. Raises `TwinError` or `OSError` where it is damaged."""


def lines(path: Path) -> Iterator[str]:
    """The lines of a file without colours, long ones cut. Raises `OSError`."""
    with unpacked(path) as file:
        while line := file.readline(LONGEST):
            rest = line
            while not rest.endswith(b"\n") and len(rest) == LONGEST:
                rest = file.readline(LONGEST)  # of a long line
            yield plain(line).rstrip("\r\n")
