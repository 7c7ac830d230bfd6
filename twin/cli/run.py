"""`twin run`: what happens?"""

from __future__ import annotations

import typer

from twin.cli.options import JsonOption, QuietOption, ScenarioArgument, SetOption
from twin.cli.output import DOES_NOT_FIT, Output


def run(
    scenario: ScenarioArgument,
    sets: SetOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """What happens: fit, time, cost and bottleneck.

    Plays one training step. Exits with 4 when the plan does not fit in memory.
    """
    from twin.cli.answer import answer
    from twin.report import verdict

    output = Output(as_json, quiet)
    report = answer(scenario, sets or [], output)
    output.document(report.to_json())
    output.sentence(verdict(report))
    if output.tables:
        from twin.cli import tables

        output.show(*tables.report_tables(report))
    if not report.fits:
        raise typer.Exit(DOES_NOT_FIT)
