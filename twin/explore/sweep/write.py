"""A sweep as a file: its JSON document, or one row per point as CSV or Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from twin.answers.parquet import Column, to_parquet
from twin.answers.store import unwritable, write_file
from twin.answers.variants import written
from twin.errors import Problem, UsageError
from twin.explore.sweep.sweep import Sweep


def check_output(path: Path) -> None:
    """Raise `UsageError` for a file that cannot be written, before anything is played."""
    if path.suffix not in WRITERS:
        message = f"`{path}` names no format of a sweep"
        fix = f"end it with one of: {', '.join(WRITERS)}"
        raise UsageError([Problem("TW065", "", message, fix)])
    if path.is_dir():
        raise UsageError([Problem("TW063", "", f"`{path}` is a folder", "name a file in it")])
    if not path.absolute().parent.is_dir():
        message = f"there is no folder `{path.parent}`"
        raise UsageError([Problem("TW063", "", message, f"mkdir -p {path.parent}")])


def write(sweep: Sweep, path: Path) -> None:
    """Write the file whole or not at all, in the format that its name ends with; it takes the place
    of what an earlier sweep wrote there. Raises `UsageError` where the system refuses."""
    data = WRITERS[path.suffix](sweep)
    try:
        write_file(path, data)
    except OSError as error:
        raise unwritable(path, error) from None


def table(sweep: Sweep) -> dict[str, list[Any]]:
    """One column per varied field, then per answer, by name; None where there is no value. Values
    of fields are as `--set` takes them; key figures have the units of their names."""
    on_frontier = set(sweep.frontier)
    columns: dict[str, list[Any]] = {
        path: [_cell(row.values[path]) if path in row.values else None for row in sweep.rows]
        for path in sweep.fields
    }
    outcomes = [row.outcome for row in sweep.rows]
    for name in ("status", "code", "reason", "hash"):
        columns[name] = [getattr(one, name) or None for one in outcomes]
    columns["frontier"] = [place in on_frontier for place in range(len(sweep.rows))]
    for name in ("headroom_bytes", "peak_stage", "step_ns"):
        columns[name] = [getattr(one, name) for one in outcomes]
    for kpi in sweep.kpis:
        columns[kpi.key] = [one.kpis.get(kpi.key) for one in outcomes]
    return columns


def _cell(value: Any) -> Any:
    plain = isinstance(value, int | float | str) and not isinstance(value, bool)
    return value if plain else written(value)


def _json(sweep: Sweep) -> bytes:
    return (json.dumps(sweep.to_json(), indent=2, allow_nan=False) + "\n").encode()


def _csv(sweep: Sweep) -> bytes:
    columns = table(sweep)
    sink = io.StringIO()
    rows = csv.writer(sink, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows(zip(*columns.values(), strict=True))
    return sink.getvalue().encode()


def _parquet(sweep: Sweep) -> bytes:
    units = {kpi.key: {"unit": kpi.unit} for kpi in sweep.kpis}
    units |= {"headroom_bytes": {"unit": "bytes"}, "step_ns": {"unit": "ns"}}
    about = {"twin.name": sweep.name, "twin.hash": sweep.hash, "twin.fidelity": sweep.fidelity}
    columns = {name: _column(found, units.get(name, {})) for name, found in table(sweep).items()}
    return to_parquet(columns, about)


_DTYPES: Final = ((np.bool_, {bool}), (np.int64, {int}), (np.float64, {int, float}))


def _column(values: list[Any], about: Mapping[str, str]) -> Column:
    """The narrowest column that holds the values: numbers, else words."""
    missing = np.array([value is None for value in values])
    types: set[type] = {type(value) for value in cast("list[object]", values)} - {type(None)}
    for dtype, fitting in _DTYPES:
        if types <= fitting and (types or dtype is np.int64):
            numbers = np.array([value or 0 for value in values], dtype)
            return Column(numbers, about, missing=missing)
    words = list(dict.fromkeys(str(value) for value in values if value is not None))
    places = {word: place for place, word in enumerate(words)}
    found = np.array([places.get(str(value), 0) for value in values], np.int32)
    return Column(found, about, words=words, missing=missing)


WRITERS: Final[Mapping[str, Callable[[Sweep], bytes]]] = {
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}
"""What writes a file, by the end of its name."""
