"""`twin measured TRACE... [SCENARIO]`: where the steps of profiled ranks went, and what a plan says
of their layers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from twin.cli.output import Output
from twin.engine import plan
from twin.evidence.traces.answer import traced
from twin.loading import load


def measured_traces(
    paths: Sequence[str],
    scenario: str | None,
    sets: Sequence[str],
    step: int | None,
    output: Output,
) -> None:
    """Where the steps of these ranks went, with what a scenario's plan says of their layers."""
    planned = plan(load(scenario, sets)) if scenario is not None else None
    found = traced(map(Path, paths), planned, step)
    for text in found.troubles:
        output.message(text)
    output.answer(found.document, found.sentences, found.tables)
