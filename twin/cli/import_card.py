"""`twin import` of a verification card: what its recipes should take by the twin, beside what they
took."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from twin.answers import ask
from twin.cli.output import Output
from twin.errors import Problem, TwinError, UsageError
from twin.explore.search.new_plan import fabric_of
from twin.interop.importing.as_yaml import scenario_text
from twin.interop.importing.card import Entry, entries, launch_of_entry
from twin.interop.importing.launch import Launch, Source
from twin.loading import load, load_part
from twin.reports.table import Table, show

VERSION: Final = 1
"""Version of the JSON document."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One entry of a card: its launch, the scenario's text, and both step times."""

    entry: Entry
    launch: Launch
    text: str
    predicted: float
    interval: tuple[float, float] | None

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.entry.measured.step_seconds


def compare_card(
    source: Source, node: str | None, fabric: str | None, output: Output
) -> tuple[Compared, ...]:
    """What a card measured on the GPUs of a node (none: on all that the catalog has), beside what
    the twin predicts. Raises `UsageError` where no entry can be read."""
    found: list[Compared] = []
    problems: list[Problem] = []
    for entry in _wanted(source, node):
        try:
            found.append(_compared(entry, source, node, fabric))
        except TwinError as error:
            problems += (
                replace(one, message=f"{entry.gpu}: {one.message}") for one in error.problems
            )
    if not found:
        raise UsageError(problems or [Problem("TW041", "", "the card measured no such run", "")])
    for problem in problems:
        output.message(f"Left out: {problem.message}.")
    _say(found, output)
    return tuple(found)


def _wanted(source: Source, node: str | None) -> Iterator[Entry]:
    gpu = source.defined.get("GPU")
    own = load_part("nodes", node).spec.gpu.name if node else None
    for entry in entries(source):
        known = entry.measured.node
        if gpu not in (None, entry.gpu) or known is None:
            continue
        if own in (None, load_part("nodes", known).spec.gpu.name):
            yield entry


def _compared(entry: Entry, source: Source, node: str | None, fabric: str | None) -> Compared:
    launch = launch_of_entry(entry, source)
    where = node or entry.measured.node
    assert where is not None
    each = launch.gpus_per_node
    whole = each is None or each == load_part("nodes", where).spec.gpus
    active = where if whole else {"extends": where, "gpus": each}
    cluster = {"node": active, "nodes": launch.nodes, "fabric": fabric or fabric_of(where)}
    text = scenario_text(launch, cluster, source.file, "card")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "card.yaml"
        path.write_text(text, encoding="utf-8")
        report = ask(load(path), cache=False).report
    return Compared(
        entry, launch, text, report.kpis["step_seconds"], report.intervals["step_seconds"]
    )


def _say(found: list[Compared], output: Output) -> None:
    heads = ("Recipe", "GPU", "Predicted", "80 % interval", "Measured", "Predicted / measured")
    table = Table("Step times", heads, frozenset((0, 1)))
    for one in found:
        low, high = one.interval or (one.predicted, one.predicted)
        table.add_row(
            one.launch.name,
            one.entry.gpu,
            show(one.predicted, "s"),
            f"{show(low, 's')} to {show(high, 's')}",
            show(one.entry.measured.step_seconds, "s"),
            f"{one.ratio:.2f}",
        )
    if output.tables:
        output.show(table)
    elif not output.json:
        for one in found:
            output.sentence(f"{one.entry.gpu}: predicted / measured {one.ratio:.2f}.")
    for one in found:
        for remark in one.launch.remarks:
            output.message(f"{one.entry.gpu}: {remark}")


def document(found: tuple[Compared, ...]) -> dict[str, Any]:
    """The answer as one JSON document."""
    return {
        "version": VERSION,
        "format": "card",
        "entries": [
            {
                "name": one.launch.name,
                "gpu": one.entry.gpu,
                "predicted_seconds": one.predicted,
                "interval": list(one.interval) if one.interval else None,
                "measured_seconds": one.entry.measured.step_seconds,
                "ratio": one.ratio,
                "warnings": list(one.launch.remarks),
            }
            for one in found
        ],
    }
