"""Rows of a Parquet file as plain data; pyarrow is not typed, and stays here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]


def read_rows(path: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """Names of columns, and a mapping per row. Raises `OSError` or `ValueError` where the file is
    none."""
    reader: Any = parquet
    table = reader.read_table(path)
    return [str(column) for column in table.column_names], list(table.to_pylist())
