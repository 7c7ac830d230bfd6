"""`twin check`: is it valid, and does it fit? Plans, and simulates nothing."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from twin.cli.options import JsonOption, QuietOption, ScenarioArgument, SetOption
from twin.cli.output import DOES_NOT_FIT, Output

if TYPE_CHECKING:
    from twin.plan.types import Plan

VERSION = 1
"""Version of the JSON document."""


def check(
    scenario: ScenarioArgument,
    sets: SetOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Is it valid, and does it fit? No simulation.

    Exits with 3 when the scenario is invalid or its layout impossible, with 4 when it does not fit.
    """
    from twin.loading import load
    from twin.plan import plan
    from twin.report import fitting, memory_report

    output = Output(as_json, quiet)
    planned = plan(load(scenario, sets or []))
    memory = memory_report(planned.memory)
    output.document(document(planned))
    output.sentence(fitting(memory))
    if output.tables:
        from twin.cli import tables

        output.show(*tables.plan_tables(planned, memory))
    if not planned.memory.fits:
        raise typer.Exit(DOES_NOT_FIT)


def document(planned: Plan) -> dict[str, Any]:
    """The answer as one JSON document: a scenario that reaches a plan is valid."""
    from twin.loading import scenario_hash
    from twin.report import memory_report

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
        "warnings": [asdict(warning) for warning in planned.warnings],
    }
