"""A table of step times: CSV or YAML, with at least `seconds` and what was run (`scenario`, or the
columns of `twin.evidence.calibrate.columns`)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar, Final, final

from twin.evidence.calibrate.columns import steps
from twin.evidence.calibrate.sources.base import Findings, Source
from twin.evidence.calibrate.table import read_table

_ROWS: Final = re.compile(r"^rows:", re.MULTILINE)
_SECONDS: Final = re.compile(r"\bseconds\b")


@final
class StepTable(Source):
    """Rows of runs with their seconds."""

    words: ClassVar[str] = "table of step times"

    def recognises(self, head: bytes) -> bool:
        """By a header with `seconds`, or `rows:` that have them."""
        text = head.decode("utf-8", "replace")
        if _ROWS.search(text):
            return _SECONDS.search(text) is not None
        told = [line for line in text.split("\n") if line.strip() and line[0] != "#"]
        columns = [cell.strip(' "\r') for cell in (told[0] if told else "").split(",")]
        return "seconds" in columns and len(columns) > 1

    def read(self, path: Path) -> Findings:
        """Every row as a scenario."""
        rows = steps(read_table(path), None, ())
        return Findings((f"{len(rows)} step times",), rows=rows)
