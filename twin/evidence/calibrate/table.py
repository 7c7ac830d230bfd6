"""A table of step times: one row per run, one column per setting.

CSV (with a header; lines that begin with `#` are comments), YAML (`rows:` and a list of mappings)
or Parquet. Every cell knows its place, so that problems are shown there.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, cast

from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]

from twin.errors import Origin, Problem, UsageError
from twin.interop.recognise import head, language, plain
from twin.loading.files import display, read_text, read_tree
from twin.loading.tree import Branch, Items, Leaf


def read_rows(path: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """Names of columns, and a mapping per row. Raises `OSError` or `ValueError` where the file is
    none."""
    reader: Any = parquet
    table = reader.read_table(path)
    return [str(column) for column in table.column_names], list(table.to_pylist())


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell says, as text, and where it stands."""

    text: str
    origin: Origin


Row = Mapping[str, Cell]
"""Column -> cell; empty cells are left out."""


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a file, where its columns are named, and the SHA-256 of its bytes."""

    file: str
    digest: str
    columns: Mapping[str, Origin]
    rows: tuple[Row, ...]


def read_table(path: Path) -> Table:
    """The table in a file. Raises `UsageError` where it is none."""
    begin = head(path)
    read = _yaml if language(plain(begin)) == "yaml" else _csv
    columns, rows = (_parquet if begin.startswith(b"PAR1") else read)(path)
    if not rows:
        raise UsageError([Problem("TW350", "", f"`{display(path)}` has no rows", _SHAPE)])
    return Table(display(path), digest(path), columns, tuple(rows))


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_SHAPE: Final = (
    "a table has a row per run: seconds, gpu, gpus, model, global_batch, sequence, and what the "
    "layout sets"
)

_Read = tuple[dict[str, Origin], list[Row]]


def _csv(path: Path) -> _Read:
    name, lines = display(path), read_text(path).split("\n")
    told = [(i, line) for i, line in enumerate(lines, 1) if line.strip() and line[0] != "#"]
    if not told:
        raise UsageError([Problem("TW350", "", f"`{name}` is empty", _SHAPE)])
    cells = [list(_cells(name, number, line)) for number, line in told]
    header = [Cell(cell.text.strip(), cell.origin) for cell in cells[0]]
    _refuse_twice(header)
    rows: list[Row] = []
    for (number, line), row in zip(told[1:], cells[1:], strict=True):
        if len(row) != len(header):
            message = f"{len(row)} cells under {len(header)} columns"
            fix = 'put text with commas into quotes, "[norms, swiglu]"'
            place = Origin(name, number, 1, line, max(1, len(line)))
            raise UsageError([Problem("TW350", "", message, fix, place)])
        rows.append({h.text: c for h, c in zip(header, row, strict=True) if c.text})
    return {cell.text: cell.origin for cell in header}, rows


def _cells(name: str, number: int, line: str) -> Iterator[Cell]:
    """The cells of one line, each with its column of text."""
    texts = next(csv.reader([line], skipinitialspace=True))
    # Of a quoted cell this is too early by its quotes, and the search below finds it.
    starts = accumulate((len(text) + 1 for text in texts), initial=0)
    for text, start in zip(texts, starts, strict=False):
        found = line.find(text.strip(), start) if text.strip() else start
        place = Origin(name, number, max(found, start) + 1, line, max(1, len(text.strip())))
        yield Cell(text.strip(), place)


def _refuse_twice(header: Sequence[Cell]) -> None:
    seen: set[str] = set()
    for cell in header:
        if cell.text in seen:
            message = f"the column `{cell.text}` is there twice"
            raise UsageError([Problem("TW350", "", message, "remove one", cell.origin)])
        seen.add(cell.text)


def _yaml(path: Path) -> _Read:
    tree, problems = read_tree(path)
    if tree is None or problems:
        raise UsageError(problems)
    child = tree.children.get("rows")
    if child is None or not isinstance(child.node, Items):
        raise UsageError([Problem("TW350", "rows", "there is no list `rows`", _SHAPE, tree.origin)])
    columns: dict[str, Origin] = {}
    rows: list[Row] = []
    for node in child.node.nodes:
        if not isinstance(node, Branch):
            message = "a row is a mapping of columns to values"
            raise UsageError([Problem("TW350", "rows", message, _SHAPE, node.origin)])
        row: dict[str, Cell] = {}
        for key, own in node.children.items():
            columns.setdefault(key, own.key)
            text = _text(own.node)
            if text is None:
                message = f"`{key}` takes one value, or a list of them"
                raise UsageError([Problem("TW350", "rows", message, _SHAPE, own.node.origin)])
            if text:
                row[key] = Cell(text, own.node.origin)
        rows.append(row)
    return columns, rows


def _text(node: object) -> str | None:
    """A scalar, or a list of scalars, as an override writes it."""
    match node:
        case Leaf():
            return _written(node.value)
        case Items():
            parts = [_written(n.value) for n in node.nodes if isinstance(n, Leaf)]
            return f"[{', '.join(parts)}]" if len(parts) == len(node.nodes) else None
        case _:
            return None


def _written(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parquet(path: Path) -> _Read:
    name = display(path)
    try:
        columns, found = read_rows(path)
    except (OSError, ValueError) as error:
        message = f"`{name}` is no Parquet file: {next(iter(str(error).splitlines()), '')}"
        raise UsageError([Problem("TW350", "", message)]) from None
    rows: list[Row] = []
    for number, values in enumerate(found, 1):
        texts = {key: _entry(value) for key, value in values.items()}
        # A file of columns has no lines: the row's number stands for one.
        rows.append(
            {
                key: Cell(text, Origin(name, number, column, f"{key} = {text}", len(key)))
                for column, (key, text) in enumerate(texts.items(), 1)
                if text
            }
        )
    return {column: Origin(name) for column in columns}, rows


def _entry(value: Any) -> str:
    """A value of a column; whole numbers that a table keeps as floats, because some are missing,
    are whole again."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return f"[{', '.join(_entry(item) for item in items)}]"
    if isinstance(value, float):
        return "" if value != value else str(int(value)) if value.is_integer() else repr(value)  # noqa: PLR0124
    return _written(value)
