"""`twin check`: is it valid, and does it fit? Plans, and simulates nothing."""

from __future__ import annotations

import typer

from twin.cli.options import JsonOption, QuietOption, ScenarioArgument, SetOption
from twin.cli.output import Output


def check(
    scenario: ScenarioArgument,
    sets: SetOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Is it valid, and does it fit? No simulation. If not, the nearest plans that do.

    Exits with 3 when the scenario is invalid or its layout impossible, with 4 when it does not fit,
    with 5 when its memory is not as the scenario expects. Expected times are left to `twin run`.
    """
    from twin.answers import check as check_scenario
    from twin.cli.answer import exit_code, say_failed
    from twin.loading import load_any

    output = Output(as_json, quiet)
    found = check_scenario(load_any(scenario, sets or []))
    output.document(found.to_json())
    for sentence in found.sentences:
        output.sentence(sentence)
    failed = say_failed(found.expectations, output)
    if output.tables:
        from twin.reports.expect import expectation_notes
        from twin.reports.table import warning_notes

        notes = (*expectation_notes(found.expectations), *warning_notes(found.warnings))
        output.show(*found.tables, *notes)
    if code := exit_code(found, failed):
        raise typer.Exit(code)
