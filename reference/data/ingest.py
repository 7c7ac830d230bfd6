"""Raw files to documents: whatever is none is counted, with its place.

One document is in memory at a time, and a batch of rows of a Parquet file; a line longer than six
times `ingest.max_bytes` (JSON may spell a byte with six) is not held. Files come in the order of
the sources, and within a folder by path, so the file system decides nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from reference.data.spec import IngestSpec, SourceSpec
from reference.data.stage import Dropped, Record
from reference.text.files import READERS, Content, Defect, decoded, records
from twin.errors import Problem, UsageError

Found = Iterator[Record | Dropped]
_PLAIN: Final = frozenset("\t\n\r\f")


def read_source(source: SourceSpec, limits: IngestSpec) -> Found:
    """Every document of a source, and every loss. Raises `UsageError`: TW220 a path that is not
    there, TW228 Parquet without pyarrow."""
    for path in source.path:
        root = Path(path).expanduser()
        if root.is_dir():
            for file in _below(root):
                place = f"{root.name}/{file.relative_to(root).as_posix()}"
                yield from _file(file, place, source, limits)
        elif root.is_file():
            yield from _file(root, root.name, source, limits)
        else:
            wrong = f"there is no file or folder `{path}`"
            raise UsageError([Problem("TW220", f"sources.{source.name}.path", wrong)])


def _below(root: Path) -> list[Path]:
    found: list[Path] = []
    for folder, below, names in os.walk(root):
        below.sort()
        found += [Path(folder, name) for name in names]
    return sorted(found)


def _file(path: Path, place: str, source: SourceSpec, limits: IngestSpec) -> Found:
    if any(part.startswith(".") for part in Path(place).parts):
        yield Dropped(source.name, "hidden file", place)
        return
    if path.suffix.lower() not in READERS:
        yield Dropped(source.name, "unknown suffix", place)
        return
    try:
        for number, content in records(path, source.field, limits.max_bytes, "sources.path"):
            where = f"{place}:{number}" if number else place
            yield _judged(source, where, content, limits)
    except OSError:
        yield Dropped(source.name, "unreadable file", place)


def _judged(
    source: SourceSpec, place: str, content: Content, limits: IngestSpec
) -> Record | Dropped:
    if isinstance(content, Defect):
        return Dropped(source.name, content.reason, place)
    text = decoded(content)
    if text is None:
        return Dropped(source.name, "not UTF-8", place)
    if len(text.encode()) > limits.max_bytes:
        return Dropped(source.name, "huge", place)
    if not text.strip():
        return Dropped(source.name, "empty", place)
    if not _is_text(text, limits.control):
        return Dropped(source.name, "not text", place)
    return Record(f"{source.name}/{place}", source.name, source.domain, text)


def _is_text(text: str, most: float) -> bool:
    """Whether it has no zero byte, and few control characters."""
    if "\0" in text:
        return False
    control = sum((one < " " and one not in _PLAIN) or one in "\x7f\ufffd" for one in text)
    return control <= most * len(text)
