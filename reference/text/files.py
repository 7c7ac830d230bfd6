"""Records in files: JSON lines, Parquet and plain text, by the suffix.

A plain file is one record; a line of JSONL and a row of Parquet are one each, numbered from 1. A
record that holds no text comes out as a `Defect`: the trainer raises it, a build counts it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from twin.errors import Problem, UsageError

_ESCAPED: Final = 6
"""Bytes by which JSON may write one: `\\u0041`."""
_ROWS: Final = 256


@dataclass(frozen=True, slots=True)
class Defect:
    """A record without text."""

    reason: str
    """As a build counts it."""
    message: str = ""
    """As an error says it, behind the name of the file."""
    fields: tuple[str, ...] = ()
    """The fields that do hold text."""


Content = bytes | str | Defect
Records = Iterator[tuple[int, Content]]
"""The number of each record, 0 for a whole file, and what it holds."""


def records(path: Path, field: str, most: int | None = None, asker: str = "data.source") -> Records:
    """Every record of a file, of any size or of at most `most` bytes; a file of an unknown suffix
    is plain text. Raises `OSError`, and `UsageError` TW228 for Parquet without pyarrow."""
    return READERS.get(path.suffix.lower(), _plain)(path, field, most, asker)


def decoded(content: bytes | str) -> str | None:
    """The text, or None where it is not UTF-8: JSON can spell half of a surrogate pair. Line ends
    stay as they are."""
    try:
        return content.decode() if isinstance(content, bytes) else content.encode().decode()
    except UnicodeError:
        return None


def _plain(path: Path, _field: str, most: int | None, _asker: str) -> Records:
    with path.open("rb") as file:
        content = file.read(-1 if most is None else most + 1)
    yield 0, content if most is None or len(content) <= most else Defect("huge")


def _json_lines(path: Path, field: str, most: int | None, _asker: str) -> Records:
    longest = -1 if most is None else _ESCAPED * most + 4096
    with path.open("rb") as lines:
        number = 0
        while line := lines.readline(longest):
            number += 1
            if len(line) == longest and not line.endswith(b"\n"):
                while (rest := lines.readline(longest)) and not rest.endswith(b"\n"):
                    pass
                yield number, Defect("huge")
            else:
                yield number, _of_line(line, field) if line.strip() else Defect("empty")


def _of_line(line: bytes, field: str) -> str | Defect:
    text = decoded(line)
    if text is None:
        return Defect("not UTF-8")
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Defect("not JSON", f"is not JSON ({getattr(error, 'msg', 'nested too deeply')})")
    reason = f"no text in `{field}`"
    if not isinstance(record, dict):
        return Defect(reason, "is no JSON object")
    if isinstance(record.get(field), str):
        return record[field]
    keys = tuple(key for key, value in record.items() if isinstance(value, str))
    return Defect(reason, f"has {reason}", keys)


def _parquet(path: Path, field: str, _most: int | None, asker: str) -> Records:
    try:
        import pyarrow as pa  # noqa: PLC0415 - only who reads Parquet needs it
        from pyarrow import parquet  # noqa: PLC0415 - as above
    except ImportError:
        wrong, hint = f"reading `{path}` needs pyarrow", "install it: pip install pyarrow"
        raise UsageError([Problem("TW228", asker, wrong, hint)]) from None
    try:
        with parquet.ParquetFile(path) as table:
            kinds: dict[str, str] = {column.name: str(column.type) for column in table.schema_arrow}
            textual = tuple(key for key in kinds if kinds[key] in ("string", "large_string"))
            if field not in textual:
                reason = f"no column of text `{field}`"
                yield 0, Defect(reason, f"has {reason}", textual)
                return
            batches = table.iter_batches(batch_size=_ROWS, columns=[field])
            columns: Iterator[Any] = (batch.column(0).cast("binary") for batch in batches)
            contents = (content for column in columns for content in column.to_pylist())
            missing = Defect(f"no text in `{field}`", f"has no text in `{field}`")
            for number, content in enumerate(contents, start=1):
                yield number, missing if content is None else content
    except pa.ArrowException as error:
        yield 0, Defect("not Parquet", f"is no Parquet file ({error})")


READERS: Final[dict[str, Callable[[Path, str, int | None, str], Records]]] = {
    ".jsonl": _json_lines,
    ".parquet": _parquet,
    **dict.fromkeys((".txt", ".md", ".rst", ".py"), _plain),
}
"""How the files of each suffix are read."""
