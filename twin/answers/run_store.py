"""The folder of stored runs: one per scenario hash, complete or absent, whoever else writes there.

An entry is written aside and renamed into place, and carries the digests of its files: what is
half-written, damaged or of other code is not found, and the next answer takes its place.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from twin.answers.key import Key, source_digest
from twin.answers.parquet import Column, from_parquet, to_parquet
from twin.answers.store import discard_abandoned, optional, runs_folder, write_folder
from twin.engine.trace import Spans, Trace
from twin.errors import Problem, UsageError
from twin.kinds.base import Fidelity
from twin.loading import resolve, scenario_hash
from twin.loading.suggest import hint
from twin.reports import Report
from twin.scenario import Provenance, Scenario
from twin.sources import Sourced

_LOG = logging.getLogger(__name__)

RUN = "run.json"
VERSION: Final = 1
"""Version of an entry's files."""
_LEDGER = TypeAdapter(dict[str, Sourced])
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
            _SAID.validate_python(document)
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


_RECORD, _SAID = TypeAdapter(_Record), TypeAdapter(_Said)


def take(key: Key) -> tuple[Trace, Made, Path] | None:
    """The stored trace of this key with its circumstances; None where there is no sound one."""
    path = runs_folder() / key.folder
    try:
        record = _RECORD.validate_json((path / RUN).read_bytes())
        if record.key != key:
            return None
        files = {name: (path / name).read_bytes() for name in (SPANS, REST)}
        if {name: _digest(data) for name, data in files.items()} != record.digests:
            return None
        return trace_of(files), Made(record.created, record.wall_seconds), path
    except FileNotFoundError:
        return None
    except Exception as error:  # noqa: BLE001  whatever is wrong with it: it is no answer
        _LOG.debug("%s is not readable: %s", path, error)
        return None


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
        ledger = _LEDGER.validate_python(_json(entry, "ledger.json"))
        document = entry.report["scenario"]
        scenario = Scenario.model_validate(document, context=Provenance(ledger=ledger))
    except (ValidationError, KeyError):
        raise _unreadable(entry, "its scenario is none that this version knows") from None
    if entry.current and scenario_hash(scenario) != entry.hash:
        raise _unreadable(entry, "its scenario was edited")
    return scenario


def _files(key: Key, scenario: Scenario, trace: Trace, report: Report) -> dict[str, bytes]:
    """All files of an entry, by name."""
    played = trace_files(trace, {"twin." + name: text for name, text in asdict(key).items()})
    known = report.provenance
    record = _Record(
        version=VERSION,
        key=key,
        name=scenario.name,
        fits=report.fits,
        step_seconds=report.step_ns / 1e9,
        created=known.created,
        wall_seconds=known.wall_seconds or 0.0,
        command=known.reproduce,
        digests={name: _digest(data) for name, data in played.items()},
    )
    return {
        **played,
        "scenario.yaml": resolve(scenario).encode(),
        "ledger.json": _LEDGER.dump_json(dict(scenario.ledger)),
        "report.json": _text(report.to_json()),
        RUN: _text(asdict(record)),
    }


def _text(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _entry(path: Path) -> StoredRun | None:
    """The entry in a folder; None where there is no complete one."""
    if path.name.startswith("."):
        return None
    try:
        record = _RECORD.validate_json((path / RUN).read_bytes())
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
        return json.loads((entry.path / name).read_bytes(), parse_constant=_no_number)
    except (OSError, ValueError, RecursionError):
        raise _unreadable(entry, f"`{name}` is missing or damaged") from None


def _no_number(word: str) -> None:
    raise ValueError(word)


def _unreadable(entry: StoredRun, why: str) -> UsageError:
    message = f"the stored run `{entry.path.name}` cannot be read: {why}"
    again = entry.command or "twin run SCENARIO"
    return UsageError([Problem("TW062", "", message, f"store it again: `{again}`")])


SPANS, REST = "trace.parquet", "trace.json"
"""The files of a Trace."""
_UNITS = {"start": "ns", "end": "ns"}


def trace_files(trace: Trace, about: Mapping[str, str]) -> dict[str, bytes]:
    """The files that hold a trace, by name; `about` is written into the table's metadata."""
    columns = {
        one.name: Column(
            getattr(trace.spans, one.name),
            {"unit": _UNITS[one.name]} if one.name in _UNITS else {},
        )
        for one in fields(Spans)
    }
    rest = {
        name: kind.dump_python(getattr(trace, name), mode="json") for name, kind in _rest().items()
    }
    return {SPANS: to_parquet(columns, about), REST: json.dumps(rest).encode()}


def trace_of(files: Mapping[str, bytes]) -> Trace:
    """The trace that was written. Raises whatever the readers raise at files that are none."""
    columns, _ = from_parquet(files[SPANS])
    rest = json.loads(files[REST])
    known = {name: kind.validate_python(rest[name]) for name, kind in _rest().items()}
    return Trace(spans=Spans(**{one.name: columns[one.name] for one in fields(Spans)}), **known)


@cache
def _rest() -> dict[str, TypeAdapter[Any]]:
    """What reads and writes each field of a Trace beside its spans."""
    hints = get_type_hints(Trace)
    return {one.name: TypeAdapter(hints[one.name]) for one in fields(Trace) if one.name != "spans"}
