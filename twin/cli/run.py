"""`twin run`: what happens?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from twin.cli.options import (
    Fidelity,
    FidelityOption,
    JsonOption,
    NoCacheOption,
    QuietOption,
    ScenarioArgument,
    SetOption,
)
from twin.cli.output import DOES_NOT_FIT, NOT_AS_EXPECTED, NOT_CALIBRATED, Output

if TYPE_CHECKING:
    from twin.report import Report

_StrictOption = Annotated[
    bool, typer.Option("--strict", help="Exit with 6 where times lie outside of what was measured.")
]


def run(  # noqa: PLR0913  one parameter per option of the command line
    scenario: ScenarioArgument,
    *,
    sets: SetOption = None,
    fidelity: FidelityOption = Fidelity.EVENTS,
    strict: _StrictOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    no_cache: NoCacheOption = False,
) -> None:
    """What happens: fit, time, cost and bottleneck.

    Plays one training step, or a weight update. Exits with 4 when the plan does not fit in memory,
    else with 5 when something is not as the scenario expects.
    """
    from twin.cli.answer import answer
    from twin.loading import load_any
    from twin.report import verdict
    from twin.report.expect import sentence
    from twin.scenario import UpdateScenario

    output, loaded = Output(as_json, quiet), load_any(scenario, sets or [])
    if isinstance(loaded, UpdateScenario):
        from twin.cli import weight_update

        raise typer.Exit(weight_update.run(loaded, scenario, sets or [], output, strict=strict))
    report = answer(
        scenario, sets or [], output, cache=not no_cache, fidelity=fidelity, loaded=loaded
    )
    output.document(report.to_json())
    output.sentence(verdict(report))
    for judgement in report.expectations:
        if judgement.passed is False:
            output.sentence(sentence(judgement))
    if strict and report.uncalibrated:
        codes = ", ".join(one.code for one in report.uncalibrated)
        output.sentence(f"Outside of what was measured: {codes}.")
    if output.tables:
        from twin.cli import tables

        output.show(*tables.report_tables(report))
    if code := _exit_code(report, strict=strict):
        raise typer.Exit(code)


def _exit_code(report: Report, *, strict: bool) -> int:
    if not report.fits:
        return DOES_NOT_FIT
    if any(one.passed is False for one in report.expectations):
        return NOT_AS_EXPECTED
    return NOT_CALIBRATED if strict and report.uncalibrated else 0
