"""Documents in files: JSON lines, Parquet, and plain text, by the suffix; folders of them.

A plain file is one document; a line of JSONL and a row of Parquet are one each. Names are paths
below the source that was given, with `:` and the number of the record, so that a moved folder
keeps its split. Hidden files and folders are passed over, and in a folder other suffixes too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from twin.errors import Problem, UsageError

Texts = Iterator[tuple[str, str | None]]
"""Names and texts; None: the text is not UTF-8."""


def decoded(content: bytes) -> str | None:
    """The text of a file, or None where it is not UTF-8. Line ends stay as they are."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def texts(source: str, field: str) -> Texts:
    """Every document of a file or folder.

    Raises `UsageError`: TW220 nothing there, or not to be read, TW221 no format of this suffix,
    TW222 a record whose `field` is missing or no text, TW228 no pyarrow for Parquet.
    """
    root = Path(source).expanduser()
    try:
        if root.is_dir():
            for path in _below(root):
                yield from _READERS[path.suffix.lower()](
                    path, f"{root.name}/{path.relative_to(root).as_posix()}", field
                )
        elif root.is_file() and root.suffix.lower() not in _READERS:
            raise _unknown_format(root)
        else:
            yield from _READERS.get(root.suffix.lower(), _plain)(root, root.name, field)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        name = error.filename or source
        raise UsageError(
            [Problem("TW220", "data.source", f"cannot read `{name}`: {reason}", _hint(root))]
        ) from None


def _below(root: Path) -> list[Path]:
    """The files of a folder that can be read, sorted; nothing hidden."""
    found: list[Path] = []
    for folder, below, names in os.walk(root, onerror=_refuse):
        below[:] = [name for name in below if not name.startswith(".")]
        seen = (Path(folder, name) for name in names if not name.startswith("."))
        found += [path for path in seen if path.suffix.lower() in _READERS]
    return sorted(found)


def _refuse(error: OSError) -> None:
    raise error


def _plain(path: Path, name: str, _field: str) -> Texts:
    yield name, decoded(path.read_bytes())


def _json_lines(path: Path, name: str, field: str) -> Texts:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            text = decoded(line)
            yield f"{name}:{number}", None if text is None else _of_line(text, path, number, field)


def _of_line(line: str, path: Path, number: int, field: str) -> str | None:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise _bad_record(path, number, f"is not JSON ({error.msg})", "") from None
    if not isinstance(record, dict):
        raise _bad_record(path, number, "is no JSON object", "")
    if not isinstance(record.get(field), str):
        keys = [key for key, value in record.items() if isinstance(value, str)]
        raise _bad_record(path, number, f"has no text in `{field}`", _choose(keys))
    return _encodable(record[field])


def _encodable(text: str) -> str | None:
    """JSON can spell half of a surrogate pair, which no UTF-8 holds."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text


def _parquet(path: Path, name: str, field: str) -> Texts:
    try:
        import pyarrow as pa  # noqa: PLC0415 - only who reads Parquet needs it
        from pyarrow import parquet  # noqa: PLC0415 - as above
    except ImportError:
        wrong, hint = f"reading `{path}` needs pyarrow", "install it: pip install pyarrow"
        raise UsageError([Problem("TW228", "data.source", wrong, hint)]) from None
    try:
        with parquet.ParquetFile(path) as table:
            kinds = {column.name: column.type for column in table.schema_arrow}
            textual = [
                key for key, kind in kinds.items() if str(kind) in ("string", "large_string")
            ]
            if field not in textual:
                raise _bad_record(path, 0, f"has no column of text `{field}`", _choose(textual))
            columns = (batch.column(0) for batch in table.iter_batches(columns=[field]))
            contents = (value for column in columns for value in column.cast("binary").to_pylist())
            for number, content in enumerate(contents, start=1):
                if content is None:
                    raise _bad_record(path, number, f"has no text in `{field}`", "")
                yield f"{name}:{number}", decoded(content)
    except pa.ArrowInvalid as error:
        raise _bad_record(path, 0, f"is no Parquet file ({error})", "") from None


_READERS: dict[str, Callable[[Path, str, str], Texts]] = {
    ".jsonl": _json_lines,
    ".parquet": _parquet,
    **dict.fromkeys((".txt", ".md", ".rst", ".py"), _plain),
}


def _choose(keys: list[str]) -> str:
    return f"set data.field to one of {', '.join(f'`{key}`' for key in keys[:8])}" if keys else ""


def _bad_record(path: Path, number: int, wrong: str, hint: str) -> UsageError:
    where = f"`{path}`" + (f" record {number}" if number else "")
    return UsageError([Problem("TW222", "data.field", f"{where} {wrong}", hint)])


def _unknown_format(path: Path) -> UsageError:
    wrong = f"`{path}`: the suffix `{path.suffix}` is no format of text"
    return UsageError([Problem("TW221", "data.source", wrong, f"one of {', '.join(_READERS)}")])


def _hint(root: Path) -> str:
    nearest = next((parent for parent in root.absolute().parents if parent.is_dir()), None)
    names = sorted(path.name for path in nearest.iterdir()) if nearest else []
    there = ", ".join([name for name in names if not name.startswith(".")][:8])
    return f"in `{nearest}` there are: {there}" if there else ""
