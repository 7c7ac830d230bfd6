"""What all formats share: the stamp that they carry, the columns of the spans, and how a run
becomes files."""

from __future__ import annotations

import errno
import gzip
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from io import SEEK_SET, BytesIO, UnsupportedOperation
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from twin.answers import Run
from twin.answers.run_store import fill, unwritable, write_file
from twin.answers.trace_files import Content
from twin.engine.program import STREAMS
from twin.engine.trace import Trace
from twin.errors import Problem, UsageError
from twin.interop.export import MODULES, formats
from twin.loading import scenario_hash
from twin.loading.tree import hint
from twin.planning.types import Plan
from twin.reports.summary import catalog_use
from twin.scenario import Scenario

UNITS: Mapping[str, str] = MappingProxyType({"start": "ns", "end": "ns"})
"""Units of the spans' columns; the others have none."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Where a file came from: the same in every format, and the same for the same inputs. It holds
    no date and no duration."""

    scenario: str
    hash: str
    twin_version: str
    fidelity: str
    calibration: str
    catalog: str
    """Digest of the catalog numbers that were used, with their sources."""
    command: str
    """Makes the file again, under the name of its hash."""


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of words: the values index into them."""

    values: NDArray[Any]
    words: tuple[str, ...]


class Format(Protocol):
    """A module of this package, which is one format."""

    SUFFIX: str
    """Of its files, such as `.csv`."""
    PARTS: tuple[str, ...]
    """What its files add to the stem of the name that the user gave; the first adds nothing."""

    def files(self, run: Run, stamp: Stamp) -> Mapping[str, Content]:
        """The content of each part."""
        ...


class LaunchFormat(Format, Protocol):
    """A format with which another program is launched: of a plan alone, with what it loses."""

    def exported(self, plan: Plan) -> Any:
        """What the file says, with its `arguments`, `losses` and `caveats`."""
        ...

    def written(self, found: Any, stamp: Stamp, suffix: str) -> str:
        """The text for a file that ends in this."""
        ...


def format_of(name: str) -> Format:
    """The format of this name. Raises `UsageError` with the nearest one where there is none, and
    where it needs a library that is not installed."""
    known = formats()
    if name not in known:
        message = f"there is no format `{name}`"
        raise UsageError([Problem("TW065", "", message, hint(name, known))])
    try:
        return cast(Format, import_module(f"{__package__}.{MODULES.get(name, name)}"))
    except ModuleNotFoundError as error:
        message = f"the format `{name}` needs `{error.name}`, which is not installed"
        extra = "chakra" if name == "chakra" else "ui"
        fix = f"pip install 'twin[{extra}]', or `make app` in a checkout"
        raise UsageError([Problem("TW031", "", message, fix)]) from None


def stamp(run: Run, name: str) -> Stamp:
    """The stamp of a run's export to the format of this name."""
    report = run.report
    known = report.provenance
    asked = shlex.split(known.reproduce)[2:] if known.reproduce else []
    words = asked or [str((run.stored or Path(report.hash)) / "scenario.yaml")]
    output = f"{report.hash}{format_of(name).SUFFIX}"
    return Stamp(
        scenario=report.name,
        hash=report.hash,
        twin_version=known.twin_version,
        fidelity=known.fidelity,
        calibration=known.calibration,
        catalog=known.catalog.digest,
        command=shlex.join(["twin", "export", *words, "--format", name, "--output", output]),
    )


def stamp_of_plan(scenario: Scenario, words: Sequence[str], name: str) -> Stamp:
    """The stamp of what needs a plan and no run; `words` are what was asked for: the scenario, and
    what overrides it."""
    found = scenario_hash(scenario)
    output = f"{found}{format_of(name).SUFFIX}"
    return Stamp(
        scenario=scenario.name,
        hash=found,
        twin_version=version("twin"),
        fidelity="plan",
        calibration=scenario.calibration.name,
        catalog=catalog_use(scenario.ledger).digest,
        command=shlex.join(["twin", "export", *words, "--format", name, "--output", output]),
    )


def about(run: Run, stamp: Stamp) -> dict[str, str]:
    """The stamp, and what a reader of the spans must know of them, as text by name."""
    trace = run.trace
    return asdict(stamp) | {
        "step_ns": str(trace.step_ns),
        "repeats": str(trace.repeats),
        "window_start_ns": str(trace.window_start),
        "window_end_ns": str(trace.window_end),
        "note": _note(trace),
    }


def _note(trace: Trace) -> str:
    """How much of the step the spans are: a window that was proved to repeat is there once."""
    if trace.shown is not None:
        begin, end = trace.shown
        return f"The spans are those of some ranks from {begin} to {end} ns of the simulated part."
    if trace.repeats <= 1:
        return "The spans are the whole step."
    later = (trace.repeats - 1) * (trace.window_end - trace.window_start)
    return (
        f"From window_start_ns to window_end_ns the step runs {trace.repeats} times in a row, and "
        f"the spans hold it once: what follows happens {later} ns later than they say."
    )


def span_columns(trace: Trace) -> dict[str, NDArray[Any] | Texts]:
    """The spans, one row each in the order of role, stream and start. `chunk` and `microbatch` are
    -1 for what closes the step; `critical` marks the critical path."""
    spans = trace.spans
    critical = np.zeros(len(spans.start), dtype=np.bool_)
    critical[list(trace.critical)] = True
    return {
        "role": Texts(spans.role, trace.roles),
        "stream": Texts(spans.stream, STREAMS),
        "name": Texts(spans.name, trace.names),
        "chunk": spans.chunk,
        "microbatch": spans.microbatch,
        "start": spans.start,
        "end": spans.end,
        "critical": critical,
    }


def render(run: Run, name: str) -> Mapping[str, bytes]:
    """A run in the format of this name: the content of each part, the first under `""`."""
    made = format_of(name).files(run, stamp(run, name))
    return {part: _in_memory(data) for part, data in made.items()}


def _in_memory(data: Content) -> bytes:
    if isinstance(data, bytes):
        return data
    sink = BytesIO()
    data(sink)
    return sink.getvalue()


def write(run: Run, name: str, output: Path) -> tuple[Path, ...]:
    """Write a run in the format of this name, compressed where `output` ends in `.gz`; and the
    files that were written: `output`, then those beside it.

    Raises `UsageError` where there is no such format, or a file cannot be written.
    """
    return write_parts(format_of(name).files(run, stamp(run, name)), output)


def write_parts(made: Mapping[str, Content], output: Path) -> tuple[Path, ...]:
    """Write the parts of an export, as `write` does."""
    for part, data in made.items():
        path = beside(output, part)
        _place(path, _compressed(data) if path.suffix == ".gz" else data)
    return tuple(beside(output, part) for part in made)


def _compressed(data: Content) -> Content:
    """The same as gzip has it; without the time, so that the same data gives the same bytes."""

    def written(file: BinaryIO) -> None:
        with _Forward("", "wb", 6, file, mtime=0) as packed:
            if isinstance(data, bytes):
                packed.write(data)
            else:
                data(cast(BinaryIO, packed))

    return written


class _Forward(gzip.GzipFile):
    """Says that it cannot go back, which gzip's own file promises and then refuses: a zip inside
    asks, and does without."""

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        raise UnsupportedOperation(f"no way to {offset} ({whence}): written forward only")


def beside(output: Path, part: str) -> Path:
    """The path of a part: `step.csv.gz` and `-kpis` is `step-kpis.csv.gz`."""
    plain = output.with_suffix("") if output.suffix == ".gz" else output
    rest = output.name.removeprefix(plain.stem)
    return output.with_name(f"{plain.stem}{part}{rest}")


def check(name: str, output: Path, *, force: bool) -> None:
    """Raise `UsageError` for what can be known before anything is computed: there is no such
    format, no folder for its files, or one of them exists and `force` is off."""
    parts = format_of(name).PARTS
    if str(output) == "-":
        raise UsageError([Problem("TW063", "", "an export is a file, not text", "name a file")])
    try:
        _check_place(output, parts, force=force)
    except OSError as error:
        raise unwritable(output, error) from None


def _check_place(output: Path, parts: tuple[str, ...], *, force: bool) -> None:
    if not output.absolute().parent.is_dir():
        message, fix = f"there is no folder `{output.parent}`", shlex.quote(str(output.parent))
        raise UsageError([Problem("TW063", "", message, f"mkdir -p {fix}")])
    if output.is_dir():
        raise UsageError([Problem("TW063", "", f"`{output}` is a folder", "name a file in it")])
    files = [beside(output, part) for part in parts]
    found = [path for path in files if path.exists() or path.is_symlink()]
    if found and not force:
        names = " and ".join(f"`{path}`" for path in found)
        message = f"{names} exist{'s' * (len(found) == 1)} already"
        raise UsageError([Problem("TW064", "", message, "--force replaces what is there")])


def _place(path: Path, data: Content) -> None:
    """Write a file whole or not at all; behind a link its target; a device or pipe as it is."""
    try:
        if path.exists() and not path.is_file():
            fill(path, data)
            return
        write_file(path.resolve(), data)
    except OSError as error:
        raise unwritable(path, error) from None
    except RuntimeError:  # until Python 3.13 links in a circle are no error of the system
        raise unwritable(path, OSError(errno.ELOOP, os.strerror(errno.ELOOP))) from None
