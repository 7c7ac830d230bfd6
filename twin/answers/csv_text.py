"""Tables as text with commas: the one function by which the twin writes CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any, Final

_FORMULA: Final = "=+-@\t\r"
"""First characters that make spreadsheets compute a cell (OWASP, "CSV injection")."""


def to_csv(header: Iterable[str], rows: Iterable[Sequence[Any]]) -> str:
    """Header and rows, a line each. A text that a spreadsheet would compute has an apostrophe
    before it, carriage returns are spaces, and None is an empty cell."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_cell, header))
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if type(value) is not str or not value:
        return value
    text = value.replace("\r", " ") if "\r" in value else value
    return f"'{text}" if value[0] in _FORMULA and not is_number(value) else text


def is_number(text: str) -> bool:
    """Whether the text is a number, as a spreadsheet reads it."""
    try:
        float(text)
    except ValueError:
        return False
    return True
