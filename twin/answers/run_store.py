"""The folder of stored runs: one per scenario hash, complete or absent, whoever else writes there.

An entry is written aside and renamed into place, and carries the digests of its files: what is
half-written, damaged or of other code is not found, and the next answer takes its place.

What an answer depends on: the scenario, the fidelity, and the twin's own code.

The folder of stored answers, and the one way to write there: whole or not at all.

Files and folders are written under another name and renamed into place, so that a process that is
killed leaves a complete entry or none, and processes that write at once may share a folder. Entries
that can be computed again are not flushed to the disk: their readers check them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

import twin
from twin.answers.trace_files import REST, SPANS, Content, part_of, trace_files, trace_of
from twin.engine.trace import Trace
from twin.errors import Problem, UsageError
from twin.kinds.base import Fidelity
from twin.loading import resolve, scenario_hash
from twin.loading.files import read_bytes
from twin.loading.tree import hint
from twin.reports import Report
from twin.scenario import Provenance, Root, Scenario
from twin.sources import Sourced

_LOG = logging.getLogger(__name__)

RUN = "run.json"
VERSION: Final = 1
"""Version of an entry's files."""
_Finite = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Made:
    """When an answer was computed (ISO 8601, UTC), and in how many seconds on the wall clock."""

    created: str
    wall_seconds: float


@dataclass(frozen=True, slots=True)
class StoredRun:
    """An entry of the folder, as `twin runs` lists it."""

    hash: str
    name: str
    """Of the scenario that was stored; others with the same values have the same entry."""
    fidelity: Fidelity
    fits: bool
    step_seconds: float
    created: str
    wall_seconds: float
    twin_version: str
    source: str
    """Digest of the code that gave the answer."""
    command: str | None
    """What gave the answer; None where it was no command."""
    path: Path
    bytes: int
    """On disk, all files."""

    @property
    def current(self) -> bool:
        """True where the code that is running gave this answer, and would take it as it is."""
        return self.source == source_digest()

    @property
    def report(self) -> dict[str, Any]:
        """The JSON report as it was stored. Raises `UsageError` where it cannot be read."""
        document = _json(self, "report.json")
        try:
            TypeAdapter(_Said).validate_python(document)
        except ValidationError:
            raise _unreadable(self, "its report is none that this version knows") from None
        return document


@dataclass(frozen=True, slots=True)
class _Record:
    """What `run.json` holds. Anyone may edit it, so it is read only as far as its types hold."""

    version: Literal[1]
    key: Key
    name: str
    fits: bool
    step_seconds: _Finite
    created: str
    wall_seconds: _Finite
    command: str | None
    digests: dict[str, str]

    def __post_init__(self) -> None:
        if datetime.fromisoformat(self.created).utcoffset() is None:
            raise ValueError("a date without its zone")
        datetime.fromisoformat(self.created).astimezone(UTC)


@dataclass(frozen=True, slots=True)
class _Said:
    """What is shown of a stored report, which another version may have written."""

    verdict: str
    kpis: dict[str, float | None]


@cache
def _records() -> TypeAdapter[_Record]:
    return TypeAdapter(_Record)


@cache
def _ledgers() -> TypeAdapter[dict[str, Sourced]]:
    return TypeAdapter(dict[str, Sourced])


def take(key: Key) -> tuple[Trace, Made, Path] | None:
    """The stored trace of this key with its circumstances; None where there is no sound one."""
    path = runs_folder() / key.folder
    try:
        record = _records().validate_json(read_bytes(path / RUN))
        if record.key != key:
            return None
        files = {name: read_bytes(path / name) for name in (SPANS, REST)}
        if {name: _digest(data) for name, data in files.items()} != record.digests:
            return None
        return trace_of(files), Made(record.created, record.wall_seconds), path
    except FileNotFoundError:
        return None
    except Exception as error:  # noqa: BLE001  whatever is wrong with it: it is no answer
        _LOG.debug("%s is not readable: %s", path, error)
        return None


def glimpse(key: Key, window: tuple[int, int], roles: range) -> Trace | None:
    """Of the stored trace of this key what some neighbouring roles do in a window (ns), as
    `Trace.within` has it; None where there is no sound one. No more of its spans is read."""
    path = runs_folder() / key.folder
    try:
        record, rest = _records().validate_json(read_bytes(path / RUN)), read_bytes(path / REST)
        if record.key != key or _digest(rest) != record.digests[REST]:
            return None
        return part_of(path / SPANS, rest, window, roles)
    except Exception as error:  # noqa: BLE001  as in `take`
        _LOG.debug("%s is not readable: %s", path, error)
        return None


def has(key: Key) -> bool:
    """Whether there is an answer under this key, as far as its record says."""
    one = _entry(runs_folder() / key.folder)
    return one is not None and key == Key(one.hash, one.fidelity, one.twin_version, one.source)


def put(key: Key, scenario: Scenario, trace: Trace, report: Report) -> Path | None:
    """Store an answer. Returns its folder; None, after one warning, where it cannot be written."""
    root = runs_folder()
    with optional("Runs", root):
        discard_abandoned(root)
        return write_folder(root / key.folder, _files(key, scenario, trace, report))
    return None


def stored() -> list[StoredRun]:
    """Every complete entry, the newest first."""
    try:
        found = [one for path in runs_folder().iterdir() if (one := _entry(path)) is not None]
    except OSError:
        return []
    return sorted(found, key=lambda one: (one.created, one.hash), reverse=True)


def older(seconds: float) -> list[StoredRun]:
    """The stored runs whose answer was given longer ago than that."""
    now = datetime.now(UTC)
    ages = [(one, now - datetime.fromisoformat(one.created)) for one in stored()]
    return [one for one, age in ages if age.total_seconds() > seconds]


def find(prefix: str) -> StoredRun:
    """The stored run whose folder's name is, or alone begins with, `prefix`.

    Raises `UsageError` with the nearest names where there is none, or more than one.
    """
    known = {one.path.name: one for one in stored()}
    matches = [prefix] if prefix in known else [name for name in known if name.startswith(prefix)]
    if prefix and len(matches) == 1:
        return known[matches[0]]
    if matches and prefix:
        message = f"`{prefix}` begins the names of {len(matches)} stored runs"
        listing = f"write more of it: {', '.join(sorted(matches))}"
        raise UsageError([Problem("TW061", "", message, listing)])
    message = f"there is no stored run `{prefix}` in `{runs_folder()}`"
    raise UsageError(
        [Problem("TW060", "", message, hint(prefix, known) or "`twin run SCENARIO` stores one")]
    )


def recall(entry: StoredRun) -> Scenario:
    """The scenario of a stored run, with the sources of its catalog numbers.

    Raises `UsageError` where this version cannot read it.
    """
    try:
        ledger = _ledgers().validate_python(_json(entry, "ledger.json"))
        document = entry.report["scenario"]
        scenario = Scenario.model_validate(document, context=Provenance(ledger=ledger))
    except (ValidationError, KeyError):
        raise _unreadable(entry, "its scenario is none that this version knows") from None
    if entry.current and scenario_hash(scenario) != entry.hash:
        raise _unreadable(entry, "its scenario was edited")
    return scenario


def _files(key: Key, scenario: Scenario, trace: Trace, report: Report) -> dict[str, Content]:
    """All files of an entry, by name, the record last."""
    played = trace_files(trace, {"twin." + name: text for name, text in asdict(key).items()})
    known = report.provenance

    def recorded(file: BinaryIO) -> None:
        written = {name: Path(file.name).with_name(name) for name in played}
        record = _Record(
            version=VERSION,
            key=key,
            name=scenario.name,
            fits=report.fits,
            step_seconds=report.step_ns / 1e9,
            created=known.created,
            wall_seconds=known.wall_seconds or 0.0,
            command=known.reproduce,
            digests={name: _digest_of(path) for name, path in written.items()},
        )
        file.write(_text(asdict(record)))

    return {
        **played,
        "scenario.yaml": resolve(scenario).encode(),
        "ledger.json": _ledgers().dump_json(dict(scenario.ledger)),
        "report.json": _text(report.to_json()),
        RUN: recorded,
    }


def _text(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _entry(path: Path) -> StoredRun | None:
    """The entry in a folder; None where there is no complete one."""
    if path.name.startswith("."):
        return None
    try:
        record = _records().validate_json(read_bytes(path / RUN))
        size = sum(file.stat().st_size for file in path.iterdir())
    except (OSError, ValueError, OverflowError):
        return None
    return StoredRun(
        hash=record.key.hash,
        name=record.name,
        fidelity=record.key.fidelity,
        fits=record.fits,
        step_seconds=record.step_seconds,
        created=datetime.fromisoformat(record.created)
        .astimezone(UTC)
        .isoformat(timespec="milliseconds"),
        wall_seconds=record.wall_seconds,
        twin_version=record.key.twin_version,
        source=record.key.source,
        command=record.command,
        path=path,
        bytes=size,
    )


def _json(entry: StoredRun, name: str) -> Any:
    try:
        return json.loads(read_bytes(entry.path / name), parse_constant=_no_number)
    except (OSError, ValueError, RecursionError):
        raise _unreadable(entry, f"`{name}` is missing or damaged") from None


def _no_number(word: str) -> None:
    raise ValueError(word)


def _unreadable(entry: StoredRun, why: str) -> UsageError:
    message = f"the stored run `{entry.path.name}` cannot be read: {why}"
    again = entry.command or "twin run SCENARIO"
    return UsageError([Problem("TW062", "", message, f"store it again: `{again}`")])


SOURCE: Final = Path(twin.__file__ or "").parent
"""The folder of the twin's own code."""


@dataclass(frozen=True, slots=True)
class Key:
    """Two answers with the same key are the same answer."""

    hash: str
    """Of the scenario, catalog values included, without its name and the places of its files."""
    fidelity: Fidelity
    twin_version: str
    source: str
    """Digest of the twin's own code: an edit of it never finds an older answer."""

    @property
    def folder(self) -> str:
        """Where the answer is kept: `runs/<hash>`, beside it what other fidelities say. The code is
        no part of the name, so that a new answer takes the place of the old one."""
        return self.hash if self.fidelity == "events" else f"{self.hash}-{self.fidelity}"


def key(scenario: Root, fidelity: Fidelity) -> Key:
    """The key of a scenario's answer from the code that is running."""
    return Key(scenario_hash(scenario), fidelity, version("twin"), source_digest())


@cache
def source_digest() -> str:
    """16 hexadecimal digits of the SHA-256 over every module and table (`.toml`) of the twin, by
    path and content."""
    found: list[tuple[str, ...]] = []
    for folder, _, names in os.walk(SOURCE):  # half the time of `rglob`, at every start
        below = Path(folder).relative_to(SOURCE).parts
        found += [(*below, name) for name in names if name.endswith((".py", ".toml"))]
    return _digest_below(SOURCE, found)


def digest_of(root: Path, files: Iterable[Path]) -> str:
    """16 hexadecimal digits of the SHA-256 over files below a folder, by path and content."""
    return _digest_below(root, [file.relative_to(root).parts for file in files])


def _digest_below(root: Path, files: Iterable[tuple[str, ...]]) -> str:
    digest = hashlib.sha256()
    for parts in sorted(files):
        name = "/".join(parts)
        digest.update(f"{name}\0".encode())
        with open(f"{root}/{name}", "rb", buffering=0) as file:  # noqa: PTH123  it is quicker
            digest.update(hashlib.sha256(file.read()).digest())
    return digest.hexdigest()[:16]


source_digest()  # Now, while the files are still those that this process imports.


_STORE_LOG = logging.getLogger(__name__)

_ABANDONED: Final = 3600
"""Seconds after which an unfinished entry of another process counts as abandoned."""


def runs_folder() -> Path:
    """The folder of stored answers: `TWIN_RUNS`, or `runs` in the working directory."""
    return Path(os.environ.get("TWIN_RUNS") or "runs")


def write_file(path: Path, data: Content, *, once: bool = False) -> None:
    """Write a file whole or not at all, with the folders above it. It replaces an older file.

    With `once` it never does: the file is read-only, flushed to the disk, and `FileExistsError` is
    raised where the name is taken. Raises `OSError` where the system refuses.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _unfinished(path)
    try:
        fill(unfinished, data)
        if once:
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
            unfinished.chmod(0o444)
            path.hardlink_to(unfinished)
        else:
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def fill(path: Path, data: Content) -> None:
    """Write a file in place."""
    if isinstance(data, bytes):
        path.write_bytes(data)
        return
    with path.open("wb") as file:
        data(file)


def write_folder(path: Path, files: Mapping[str, Content]) -> Path | None:
    """Write a folder of files, in their order, whole or not at all; it replaces an older folder.
    Returns its path, or None where other processes keep the name busy. Raises `OSError` where the
    system refuses."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _unfinished(path)
    unfinished.mkdir()
    try:
        for name, data in files.items():
            fill(unfinished / name, data)
        return _rename_over(unfinished, path)
    finally:
        discard(unfinished)


def remove(path: Path) -> None:
    """Delete an entry, renamed first so that nobody reads half of it. Raises `UsageError` TW063
    where the system refuses."""
    try:
        aside = path.rename(_unfinished(path))
        shutil.rmtree(aside)
    except OSError as error:
        message = f"`{path}` cannot be removed: {error.strerror}"
        raise UsageError([Problem("TW063", "", message)]) from None


def discard(path: Path) -> None:
    """Delete a file or folder, if it exists and can be deleted."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def discard_abandoned(folder: Path, pattern: str = ".*.tmp") -> None:
    """Delete the unfinished entries that killed processes left in a folder."""
    for path in folder.glob(pattern):
        try:
            if time.time() - path.stat().st_mtime > _ABANDONED:
                discard(path)
        except OSError:
            continue


def unwritable(path: Path, error: OSError, option: str = "") -> UsageError:
    """The problem TW063 of a file or folder that cannot be written."""
    message = f"`{path}` cannot be written: {error.strerror or error}"
    return UsageError([Problem("TW063", option, message)])


@contextmanager
def optional(entries: str, folder: Path) -> Generator[None]:
    """Go on without storing where the system refuses, with one warning per folder and reason."""
    try:
        yield
    except OSError as error:
        _warn_once(entries, str(folder), error.strerror or str(error))


@cache
def _warn_once(entries: str, folder: str, reason: str) -> None:
    _STORE_LOG.warning("%s are not stored: `%s` cannot be written (%s).", entries, folder, reason)


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{secrets.token_hex(8)}.tmp")


def _rename_over(unfinished: Path, path: Path) -> Path | None:
    """Rename a finished folder into place; the older entry is moved aside first. Between the two
    there is no entry: a process that reads then computes its answer itself."""
    for _ in range(3):
        try:
            return unfinished.rename(path)
        except OSError:
            old = _unfinished(path)
            try:
                path.rename(old)
            except FileNotFoundError:  # another process moved it: try again
                continue
            discard(old)
    return path if path.is_dir() else None
