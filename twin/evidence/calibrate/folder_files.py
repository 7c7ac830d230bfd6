"""The files of a folder: each recognised by its content, what was taken from it and what was not.

Step times of a log belong to the scenario beside it in its folder, or to one that is named for all.
Files that nobody recognises, and files that are damaged, are told and left alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from twin.errors import DEFAULT, Problem, TwinError, UsageError
from twin.evidence.calibrate.columns import StepRow
from twin.evidence.calibrate.kernels import Kernel
from twin.evidence.calibrate.result import SourceFile
from twin.evidence.calibrate.sources import Findings, Measurement, sources
from twin.evidence.calibrate.sources.training_log import LOGGED
from twin.evidence.calibrate.table import digest
from twin.interop.recognise import Format, head, recognised
from twin.loading import load_any
from twin.loading.files import display
from twin.scenario import Scenario

MOST: Final = 10_000
"""Files and folders in a folder, beyond which it is refused."""
WALKED: Final = 10 * MOST
"""The same with hidden ones and those that a calibration wrote."""
_OWN: Final = "catalog"
"""The folder that a calibration writes its parts to."""
DAMAGED: Final = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError)
"""What reading a file raises whose numbers or letters are none: it is told, and the rest used."""
_UNKNOWN: Final = "not recognised as a measurement"
_NO_SCENARIO: Final = (
    "nobody says what was trained: put its scenario beside it, alone in its folder, or name it "
    "with --defaults"
)


@dataclass(frozen=True, slots=True)
class ReadFile:
    """One file: how it is reported, what it says, and the scenario that it is, if it is one."""

    path: Path
    report: SourceFile
    findings: tuple[Findings, ...] = ()
    scenario: Scenario | None = None

    @property
    def measured(self) -> tuple[Measurement, ...]:
        """Its single numbers."""
        return tuple(m for found in self.findings for m in found.measurements)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Its kernels by shape."""
        return tuple(kernel for found in self.findings for kernel in found.kernels)

    @property
    def device(self) -> str:
        """The GPU that it names; empty where it names none."""
        return next((found.device for found in self.findings if found.device), "")

    def without(self, unused: Sequence[str]) -> ReadFile:
        """The same, with more that could not be used."""
        told = tuple(dict.fromkeys((*self.report.unused, *unused)))
        return replace(self, report=replace(self.report, unused=told))


def read_files(source: Path) -> tuple[ReadFile, ...]:
    """Every file of a folder, in order, or the one file that the source is."""
    return tuple(_read(path, _name(path, source)) for path in _paths(source))


def digest_of(files: Iterable[ReadFile]) -> str:
    """The SHA-256 of the digests of all files that something was taken from."""
    used = sorted(digest(file.path) for file in files if file.report.took)
    return hashlib.sha256("".join(used).encode()).hexdigest()


def _name(path: Path, source: Path) -> str:
    """The path of a file inside the folder."""
    return path.relative_to(source).as_posix() if path != source else display(path)


def _paths(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
        return
    every = [*islice(source.rglob("*"), WALKED + 1)]
    found = sorted(path for path in every if _counts(path.relative_to(source)))
    if len(found) > MOST or len(every) > WALKED:
        message = f"`{display(source)}` holds more than {MOST:,} files and folders"
        fix = "name the folder of the measurements"
        raise UsageError([Problem("TW350", "", message, fix)])
    yield from (path for path in found if path.is_file())


def _counts(path: Path) -> bool:
    """Whether a file is the user's: not hidden, and not one that a calibration wrote."""
    return _OWN not in path.parts[:-1] and not any(part.startswith(".") for part in path.parts)


def _read(path: Path, name: str) -> ReadFile:
    try:
        begin = head(path)
    except OSError as error:
        return ReadFile(path, SourceFile(name, (), (), (error.strerror or str(error),)))
    formats = recognised(begin)
    known = [one for one in sources() if any(f.name in one.reads for f in formats)]
    if not known:
        return _other(path, name, formats)
    words = tuple(one.words for one in formats)
    findings = [_tried(lambda one=one: one.read(path)) for one in known]
    took = tuple(text for found in findings for text in found.took)
    own = display(path)
    unused = tuple(
        text.removeprefix(f"{own}: ").removeprefix(f"{own}, ")
        for found in findings
        for text in found.unused
    )
    return ReadFile(path, SourceFile(name, words, took, unused), tuple(findings))


def _tried(read: Callable[[], Findings]) -> Findings:
    """What a source says, or what is wrong with the file."""
    try:
        return read()
    except TwinError as error:
        return Findings(unused=tuple(problem.message for problem in error.problems))
    except OSError as error:
        return Findings(unused=(error.strerror or str(error),))
    except DAMAGED as error:
        return Findings(unused=(f"damaged: {error}"[:200],))


def _other(path: Path, name: str, formats: Sequence[Format]) -> ReadFile:
    """A file without measurements: a scenario, or something else."""
    words = tuple(one.words for one in formats)
    if any("run" in one.uses for one in formats):
        try:
            scenario = load_any(path)
        except TwinError as error:
            told = tuple(problem.message for problem in error.problems[:1])
            return ReadFile(path, SourceFile(name, words, (), told))
        if isinstance(scenario, Scenario):
            return ReadFile(path, SourceFile(name, words, (), ()), (), scenario)
    return ReadFile(path, SourceFile(name, words, (), (_UNKNOWN,)))


def step_rows(
    files: Sequence[ReadFile], named: Scenario | None
) -> tuple[tuple[ReadFile, ...], tuple[StepRow, ...]]:
    """The step times of tables and of logs, these with the scenario of their folder, or else with
    the one that is `named`; and the files, which say where it is unknown."""
    rows: list[StepRow] = []
    told: list[ReadFile] = []
    for file in files:
        rows += (row for found in file.findings for row in found.rows)
        logged = [m for m in file.measured if m.what == LOGGED]
        scenario = _beside(file.path, files) or named if logged else None
        if logged and scenario is None:
            told.append(file.without((_NO_SCENARIO,)))
            continue
        told.append(file)
        if scenario is not None:
            rows += (StepRow(m.where, scenario, m.value, "fit", DEFAULT) for m in logged)
    return tuple(told), tuple(rows)


def _beside(path: Path, files: Iterable[ReadFile]) -> Scenario | None:
    """The only scenario in the folder of a file."""
    near = [file.scenario for file in files if file.scenario and file.path.parent == path.parent]
    return near[0] if len(near) == 1 else None
