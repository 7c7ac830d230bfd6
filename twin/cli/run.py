"""`twin run`: what happens?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twin.cli.answer import Asked
from twin.cli.options import (
    Fidelity,
    FidelityOption,
    JsonOption,
    NoCacheOption,
    QuietOption,
    ScenarioArgument,
    SetOption,
)
from twin.cli.output import DOES_NOT_FIT, Output

if TYPE_CHECKING:
    from twin.scenario import AnyScenario

_StrictOption = Annotated[
    bool, typer.Option("--strict", help="Exit with 6 where times lie outside of what was measured.")
]
_SealOption = Annotated[
    bool,
    typer.Option("--seal", help="Keep the prediction as a file that nobody changes unnoticed."),
]
_FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--output", metavar="FOLDER", help="Where --seal keeps it; `seals` if you write none."
    ),
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

    Plays one training step, one of each phase, a weight update, rollouts, or an iteration of
    reinforcement learning. Exits with 4 when the
    plan does not fit in memory, else with 5 when something is not as the scenario expects. With
    --seal the prediction becomes one that `twin track` holds a run against.
    """
    from twin.cli.answer import answered, say_failed, say_unmeasured
    from twin.cli.seals import sealed
    from twin.loading import load_any
    from twin.reports import verdict
    from twin.scenario import UpdateScenario

    if output_folder is not None and not seal:
        raise typer.BadParameter("it is where --seal keeps a prediction", param_hint="--output")
    output, loaded = Output(as_json, quiet), load_any(scenario, sets or [])
    if (refusal := _unsealed(loaded)) and seal:
        raise typer.BadParameter(refusal, param_hint="--seal")
    asked = Asked(scenario, sets or [], fidelity, cache=not no_cache, strict=strict)
    if isinstance(loaded, UpdateScenario) or loaded.phases or loaded.rl:
        raise typer.Exit(_of_several_steps(loaded, asked, output))
    found = answered(
        scenario, sets or [], output, cache=not no_cache, fidelity=fidelity, loaded=loaded
    )
    report, kept = found.report, sealed(found, output_folder) if seal else {}
    output.document(report.to_json() | kept)
    output.sentence(verdict(report))
    if kept:
        output.sentence(kept["seal"]["words"])
    failed = say_failed(report.expectations, output)
    unmeasured = say_unmeasured(report.uncalibrated, output, strict=strict)
    if output.tables:
        from twin.cli import tables

        output.show(*tables.report_tables(report))
    code = (failed if report.fits else DOES_NOT_FIT) or unmeasured
    if code:
        raise typer.Exit(code)


def _of_several_steps(loaded: AnyScenario, asked: Asked, output: Output) -> int:
    """Print the answer to a weight update, to rollouts, to an iteration of reinforcement learning,
    or to a run in phases; the exit code."""
    from twin.scenario import UpdateScenario

    if isinstance(loaded, UpdateScenario):
        from twin.cli import weight_update

        return weight_update.run(loaded, asked.path, asked.sets, output, strict=asked.strict)
    if loaded.rl and loaded.rl.iteration:
        from twin.cli import iteration

        return iteration.run(loaded, asked, output)
    if loaded.rl:
        from twin.cli import rollout

        return rollout.run(loaded, output, strict=asked.strict)
    from twin.cli import phases

    return phases.run(loaded, asked, output)


def _unsealed(loaded: AnyScenario) -> str:
    """Why such a scenario is not sealed; empty where it is."""
    from twin.scenario import UpdateScenario

    if isinstance(loaded, UpdateScenario):
        return "a weight update is not sealed"
    if loaded.rl:
        return "rollouts are not sealed"
    phases = "a seal is of one step, and this run has phases: seal a scenario of one of them"
    return phases if loaded.phases else ""
