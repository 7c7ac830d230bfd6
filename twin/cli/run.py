"""`twin run`: what happens? `twin check`: is the scenario valid, and does it fit?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from twin.cli.answer import answered, exit_code, say_failed, say_unmeasured
from twin.cli.options import (
    Fidelity,
    FidelityOption,
    JsonOption,
    NoCacheOption,
    QuietOption,
    ScenarioArgument,
    SetOption,
)
from twin.cli.output import Output

_StrictOption = Annotated[
    bool, typer.Option("--strict", help="Exit with 6 outside the calibrated range.")
]
_SealOption = Annotated[bool, typer.Option("--seal", help="Keep the prediction as a sealed file.")]
_FolderOption = Annotated[
    Path | None,
    typer.Option("--output", metavar="FOLDER", help="Write the sealed file here [default: seals]."),
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
    seal: _SealOption = False,
    output_folder: _FolderOption = None,
) -> None:
    """What happens: fit, time, cost and bottleneck.

    Simulates what the scenario asks for: one training step, a step of each phase, a weight update,
    rollouts, or an iteration of reinforcement learning. Exits with 4 when the plan does not fit in
    memory, else with 5 when an expectation fails. `twin track` compares a run with a sealed
    prediction.
    """
    from twin.kinds.base import kind_of
    from twin.loading import load_any

    if output_folder is not None and not seal:
        raise typer.BadParameter("it is where --seal keeps a prediction", param_hint="--output")
    output, loaded = Output(as_json, quiet), load_any(scenario, sets or [])
    if (refusal := kind_of(loaded).refusals.get("seal")) and seal:
        raise typer.BadParameter(refusal, param_hint="--seal")
    found = answered(
        scenario, sets or [], output, cache=not no_cache, fidelity=fidelity, loaded=loaded
    )
    kept: dict[str, Any] = {}
    if seal:
        from twin.cli.seals import sealed

        kept = sealed(found, output_folder)
    if output.json:
        output.document(found.kind.document(found) | kept)
    for sentence in found.kind.sentences(found):
        output.sentence(sentence)
    if kept:
        output.sentence(kept["seal"]["words"])
    failed = say_failed(found.report.expectations, output)
    unmeasured = say_unmeasured(found.report.uncalibrated, output, strict=strict)
    if output.tables:
        output.show(*found.kind.tables(found))
    if code := exit_code(found.report, failed) or unmeasured:
        raise typer.Exit(code)


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
    from twin.loading import load_any

    output = Output(as_json, quiet)
    found = check_scenario(load_any(scenario, sets or []))
    output.answer(found.to_json(), found.sentences)
    failed = say_failed(found.expectations, output)
    if output.tables:
        from twin.reports.expect import expectation_notes
        from twin.reports.table import warning_notes

        notes = (*expectation_notes(found.expectations), *warning_notes(found.warnings))
        output.show(*found.tables, *notes)
    if code := exit_code(found, failed):
        raise typer.Exit(code)
