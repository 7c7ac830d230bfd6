"""`twin compare`: what changed between two or more scenarios?"""

from __future__ import annotations

from typing import Annotated

import typer

from twin.cli.options import JsonOption, QuietOption, SetOption
from twin.cli.output import DOES_NOT_FIT, Output

Scenarios = Annotated[
    list[str],
    typer.Argument(metavar="SCENARIO", help="Scenario files or names; the first is the baseline."),
]


def compare(
    scenarios: Scenarios,
    sets: SetOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """What changed between two or more scenarios?

    Runs them all; the first is the baseline. `--set` applies to every one of them.
    """
    if len(scenarios) < 2:
        raise typer.BadParameter("compare needs at least two scenarios", param_hint="SCENARIO")
    from twin.cli.answer import answer
    from twin.report import compare as compare_reports
    from twin.report import difference

    output = Output(as_json, quiet)
    comparison = compare_reports([answer(one, sets or [], output) for one in scenarios])
    output.document(comparison.to_json())
    for delta in comparison.deltas:
        output.sentence(difference(comparison.reports[0], delta))
    if output.tables:
        from twin.cli import tables

        output.show(*tables.comparison_tables(comparison))
    if not all(report.fits for report in comparison.reports):
        raise typer.Exit(DOES_NOT_FIT)
