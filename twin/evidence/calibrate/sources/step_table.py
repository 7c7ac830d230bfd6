"""A table of step times: CSV or YAML, with at least `seconds` and what was run (`scenario`, or the
columns of `twin.evidence.calibrate.columns`)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, final

from twin.evidence.calibrate.columns import steps
from twin.evidence.calibrate.sources.base import Findings, Source
from twin.evidence.calibrate.table import read_table


@final
class StepTable(Source):
    """Rows of runs with their seconds."""

    reads: ClassVar[tuple[str, ...]] = ("step-table",)

    def read(self, path: Path) -> Findings:
        """Every row as a scenario."""
        rows = steps(read_table(path), None, ())
        return Findings((f"{len(rows)} step times",), rows=rows)
