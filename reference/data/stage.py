"""Stages in a row, each a folder that is complete or absent, and the documents between them.

A stage writes into `.NAME.partial` and is renamed to `NAME` when its report, `done.json`, is on the
disk: a process that is killed anywhere leaves finished stages, and at most one partial one. A stage
that `resumes` finds what it had written there; any other begins anew. Since a stage is a function
of the stages before it, an interrupted build ends with the bytes of an undisturbed one.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from reference.data.spec import BuildSpec
from reference.files import replace_synced, sync

ORIGINAL: Final = "original"
"""The origin of text that nobody rewrote."""
FILE: Final = "documents.jsonl"
DONE: Final = "done.json"
Hook = Callable[[str], None]
"""Called with the name of each point that was reached; a test kills the process there."""


@dataclass(frozen=True, slots=True)
class Record:
    """One document. A rewrite has the id of its source document as `parent`."""

    id: str
    """Source, path below it, number of the record: `books/a.jsonl:3`; of a rewrite the parent's,
    `#` and the style."""
    source: str
    domain: str
    text: str
    origin: str = ORIGINAL
    """`original`, or the style of the rewrite."""
    parent: str = ""
    made: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of a rewrite: generator, pieces (begin and end in characters of both texts), fidelity."""


def line_of(record: Record) -> str:
    """The record as a line of JSON, newline included."""
    return json.dumps(asdict(record), ensure_ascii=False, separators=(",", ":")) + "\n"


def write_records(path: Path, records: Iterable[Record]) -> None:
    """A file of records, one after the other."""
    with path.open("w", encoding="utf-8", newline="\n") as lines:
        lines.writelines(map(line_of, records))


def read_records(path: Path) -> Iterator[Record]:
    """The records of a file, one at a time."""
    with path.open("rb") as lines:
        for line in lines:
            yield Record(**json.loads(line))


@dataclass(frozen=True, slots=True)
class Dropped:
    """One document, or what should have been one, that goes no further."""

    source: str
    reason: str
    place: str
    """File and record, or the id of a document; of a copy, behind `of`, what it is a copy of."""


def write_kept(path: Path, found: Iterable[Record | Dropped], reached: Hook) -> dict[str, Any]:
    """Writes the records. The report: what came in is what went out and what was left out, by
    source and reason, with the place of the first of each."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    out = size = 0
    with path.open("w", encoding="utf-8", newline="\n") as lines:
        for record in found:
            if isinstance(record, Dropped):
                counts[record.source, record.reason] += 1
                first.setdefault((record.source, record.reason), record.place)
            else:
                out, size = out + 1, size + len(record.text.encode())
                lines.write(line_of(record))
            reached(f"{path.parent.name}:document")
    left_out = [
        {"source": key[0], "reason": key[1], "documents": counts[key], "first": first[key]}
        for key in sorted(counts)
    ]
    return {"in": out + counts.total(), "out": out, "bytes": size, "left_out": left_out}


@dataclass(frozen=True)
class StageWork:
    """What a stage works on."""

    spec: BuildSpec
    folder: Path
    """Of the build."""
    own: Path
    """Of this stage, while it is written."""
    reached: Hook

    def of(self, stage: str, file: str) -> Path:
        """A file of a stage that is done."""
        return self.folder / stage / file


@dataclass(frozen=True)
class BuildStage:
    """A named step of the build; `run` returns its report."""

    name: str
    run: Callable[[StageWork], Mapping[str, Any]]
    resumes: bool = False


def run_stages(
    stages: Sequence[BuildStage], spec: BuildSpec, folder: Path, reached: Hook, tell: Hook
) -> dict[str, Any]:
    """The reports of all stages, those done earlier included."""
    reports: dict[str, Any] = {}
    for stage in stages:
        final, partial = folder / stage.name, folder / f".{stage.name}.partial"
        if not (final / DONE).exists():
            if not stage.resumes:
                shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(exist_ok=True)
            report = stage.run(StageWork(spec, folder, partial, reached))
            write_json(partial / DONE, report)
            reached(f"{stage.name}:written")
            for path in partial.iterdir():
                sync(path)
            sync(partial)
            partial.rename(final)
            sync(folder)
        reports[stage.name] = json.loads((final / DONE).read_text(encoding="utf-8"))
        tell(report_line(stage.name, reports[stage.name]))
        reached(f"{stage.name}:done")
    return reports


def report_line(name: str, report: Mapping[str, Any]) -> str:
    """A stage in words."""
    reasons: Counter[str] = Counter()
    for row in report.get("left_out", []):
        reasons[row["reason"]] += row["documents"]
    if "in" in report:
        shown = f"{report['in']:,} in, {report['out']:,} out"
        lost = ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items()))
        return f"{name}: {shown}" + (f"; left out: {lost}" if lost else "")
    plain = {key: value for key, value in report.items() if isinstance(value, int | str)}
    return f"{name}: " + ", ".join(f"{key} {value}" for key, value in plain.items())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """A JSON file in one move: another process sees all of it or nothing."""
    replace_synced(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
