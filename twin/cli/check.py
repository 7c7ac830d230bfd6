"""`twin check`: is it valid, and does it fit? Plans, and simulates nothing."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from twin.cli.answer import say_failed
from twin.cli.options import JsonOption, QuietOption, ScenarioArgument, SetOption
from twin.cli.output import DOES_NOT_FIT, Output

if TYPE_CHECKING:
    from twin.explore.study import Suggestion
    from twin.planning.types import Plan
    from twin.reports.expect import Judgement
    from twin.scenario import AnyScenario

VERSION = 1
"""Version of the JSON document."""


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
    from twin.loading import load_any
    from twin.planning import plan
    from twin.reports import fitting, memory_report
    from twin.reports.with_data import check_data
    from twin.scenario import UpdateScenario

    output, loaded = Output(as_json, quiet), load_any(scenario, sets or [])
    if isinstance(loaded, UpdateScenario) or loaded.phases or (loaded.rl and loaded.rl.iteration):
        raise typer.Exit(_of_several_steps(loaded, output))
    planned = plan(loaded)
    check_data(loaded)
    if loaded.rl:
        from twin.kinds.rollouts import check as check_rollouts

        check_rollouts(loaded)
    memory = memory_report(planned.memory)
    judged = _judged(planned)
    nearest = _nearest(planned)
    output.document(document(planned) | {"nearest": [one.to_json() for one in nearest]})
    output.sentence(fitting(memory))
    failed = say_failed(judged, output)
    if output.tables:
        from twin.cli import tables

        output.show(*tables.plan_tables(planned, memory, judged))
        if nearest:
            output.show(tables.nearest_table(nearest))
    if not planned.memory.fits:
        raise typer.Exit(DOES_NOT_FIT)
    if failed:
        raise typer.Exit(failed)


def _of_several_steps(loaded: AnyScenario, output: Output) -> int:
    """Print the answer to a weight update, to a run in phases, or to an iteration; the exit
    code."""
    from twin.scenario import UpdateScenario

    if isinstance(loaded, UpdateScenario):
        from twin.cli import weight_update

        return weight_update.check(loaded, output)
    if loaded.phases:
        from twin.cli import phases

        return phases.check(loaded, output)
    from twin.cli import iteration

    return iteration.check(loaded, output)


def _nearest(planned: Plan) -> tuple[Suggestion, ...]:
    """Where the plan does not fit: the nearest that do."""
    if planned.memory.fits:
        return ()
    from twin.explore.study import nearest_fit

    return nearest_fit(planned.scenario)


def _judged(planned: Plan) -> tuple[Judgement, ...]:
    """The expectations that a plan alone can answer, judged; the others left open."""
    from twin.reports.expect import FITS, judge

    memory = planned.memory
    known = {
        FITS: memory.fits,
        "peak_device_bytes": memory.peak.peak_bytes,
        "peak_host_bytes_per_node": memory.host_per_node,
    }
    return judge(planned.scenario.expect, known)


def document(planned: Plan) -> dict[str, Any]:
    """The answer as one JSON document: a scenario that reaches a plan is valid."""
    from twin.loading import scenario_hash
    from twin.reports import memory_report

    mesh = planned.mesh
    return {
        "version": VERSION,
        "name": planned.scenario.name,
        "hash": scenario_hash(planned.scenario),
        "valid": True,
        "fits": planned.memory.fits,
        "layout": asdict(mesh) | {"ranks": mesh.ranks, "microbatches": planned.microbatches},
        "chunks": [
            {
                "chunk": chunk.index,
                "stage": chunk.stage,
                "layers": [one.kind for one in chunk.layers],
            }
            for chunk in planned.chunks
        ],
        "memory": memory_report(planned.memory).to_json(),
        "expectations": [asdict(one) for one in _judged(planned)],
        "warnings": [asdict(warning) for warning in planned.warnings],
    }
