"""Tables on disk: the only module that touches pyarrow, which ships no types."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

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


def to_parquet(columns: Mapping[str, Column], about: Mapping[str, str]) -> bytes:
    """A Parquet file; `about` becomes its key-value metadata. The same table gives the same
    bytes."""
    arrays = [_array(column) for column in columns.values()]
    fields = [
        pa.field(
            name,
            array.type,
            nullable=column.missing is not None,
            metadata=dict(column.about) or None,
        )
        for (name, column), array in zip(columns.items(), arrays, strict=True)
    ]
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=dict(about)))
    # Times grow along a stream: their differences are small, and compress best.
    times = [n for n, c in columns.items() if c.words is None and c.values.dtype == np.int64]
    others: Any = [name for name in columns if name not in times]
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=others,
        column_encoding=dict.fromkeys(times, "DELTA_BINARY_PACKED") or None,
    )
    return sink.getvalue().to_pybytes()


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
