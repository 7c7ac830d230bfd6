"""Tables on disk: the only module that touches pyarrow, which ships no types."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

ROWS: Final = 1 << 20
"""Of a row group."""
_LEVEL = 3
"""Of zstd; higher ones take more time than they save room."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its values, and what a reader must know of them (`unit`, `meaning`). With `words`,
    the values index into those, and the column reads as text."""

    values: NDArray[Any]
    about: Mapping[str, str] = field(default_factory=dict[str, str])
    words: Sequence[str] | None = None
    missing: NDArray[np.bool_] | None = None
    """True where there is no value."""

    def rows(self, begin: int, end: int) -> Column:
        """Some of its rows."""
        missing = None if self.missing is None else self.missing[begin:end]
        return replace(self, values=self.values[begin:end], missing=missing)


def to_parquet(columns: Mapping[str, Column], about: Mapping[str, str]) -> bytes:
    """A Parquet file; `about` becomes its key-value metadata. The same table gives the same
    bytes."""
    sink = pa.BufferOutputStream()
    write_parquet(sink, columns, about)
    return sink.getvalue().to_pybytes()


def write_parquet(sink: Any, columns: Mapping[str, Column], about: Mapping[str, str]) -> None:
    """Write a Parquet file row group by row group, so that it takes no more memory beside the
    columns than a row group does."""
    fields = [
        pa.field(
            name,
            _array(column.rows(0, 0)).type,
            nullable=column.missing is not None,
            metadata=dict(column.about) or None,
        )
        for name, column in columns.items()
    ]
    schema = pa.schema(fields, metadata=dict(about))
    # Times grow along a stream: their differences are small, and compress best.
    times = [n for n, c in columns.items() if c.words is None and c.values.dtype == np.int64]
    others: Any = [name for name in columns if name not in times]
    size = max((len(column.values) for column in columns.values()), default=0)
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=others,
        column_encoding=dict.fromkeys(times, "DELTA_BINARY_PACKED") or None,
    ) as writer:
        for begin in range(0, max(1, size), ROWS):
            arrays = [_array(column.rows(begin, begin + ROWS)) for column in columns.values()]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def row_groups(
    path: Path, ranges: Mapping[str, tuple[int, int]]
) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
    """The row groups of a file of numbers that may have rows in these ranges of its columns, ends
    included: the number of the first row, and the columns. No other is read."""
    with pq.ParquetFile(path) as file:
        known, begin = file.metadata, 0
        places = {known.schema.column(i).name: i for i in range(known.num_columns)}
        for number in range(known.num_row_groups):
            group = known.row_group(number)
            if all(
                _overlaps(group.column(places[name]).statistics, ends)
                for name, ends in ranges.items()
            ):
                table = file.read_row_group(number, use_threads=False)
                yield begin, {name: _values(table.column(name)) for name in table.column_names}
            begin += group.num_rows


def _overlaps(statistics: Any, ends: tuple[int, int]) -> bool:
    if statistics is None or not statistics.has_min_max:
        return True
    return statistics.min <= ends[1] and statistics.max >= ends[0]


def from_parquet(data: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The columns of a Parquet file that holds numbers only, and its metadata."""
    table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
    columns = {name: _values(table.column(name)) for name in table.column_names}
    found: Mapping[bytes, bytes] = table.schema.metadata or {}
    return columns, {name.decode(): text.decode() for name, text in found.items()}


# Buffers are passed as they are: pyarrow's conversions import pandas where it is installed.


def _array(column: Column) -> Any:
    values = _numbers(column.values, column.missing)
    return (
        values
        if column.words is None
        else pa.DictionaryArray.from_arrays(values, _words(column.words))
    )


def _numbers(values: NDArray[Any], missing: NDArray[np.bool_] | None) -> Any:
    flags = values.dtype == np.bool_
    data = _bits(values) if flags else pa.py_buffer(np.ascontiguousarray(values))
    known = None if missing is None else _bits(~missing)
    kind = pa.bool_() if flags else pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [known, data])


def _bits(flags: NDArray[np.bool_]) -> Any:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _words(words: Sequence[str]) -> Any:
    texts = [word.encode() for word in words]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.StringArray.from_buffers(
        len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts))
    )


def _values(column: Any) -> NDArray[Any]:
    whole = column.combine_chunks()
    kind = np.dtype(whole.type.to_pandas_dtype())
    return np.frombuffer(whole.buffers()[1] or b"", kind, len(whole), whole.offset * kind.itemsize)
