"""`twin run`: what happens? `twin check`: is the scenario valid, and does it fit?"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import typer

from twin.answers import check as check_scenario
from twin.cli.answer import answered, exit_code, say_failed, say_unmeasured
from twin.cli.output import Output
from twin.errors import printable
from twin.kinds.base import Fidelity, kind_of
from twin.loading import load_any
from twin.reports.head import expectation_notes
from twin.reports.table import warning_notes


def run(  # noqa: PLR0913  one parameter per option of the command line
    *,
    scenario: str,
    sets: list[str],
    fidelity: Fidelity,
    strict: bool,
    physics: bool,
    no_cache: bool,
    seal: bool,
    output_folder: Path | None,
    output: Output,
) -> int | None:
    """What happens: fit, time, cost and bottleneck."""

    if output_folder is not None and not seal:
        raise typer.BadParameter("it is where --seal keeps a prediction", param_hint="--output")
    loaded = load_any(scenario, sets)
    if (refusal := kind_of(loaded).refusals.get("seal")) and seal:
        raise typer.BadParameter(refusal, param_hint="--seal")
    found = answered(
        scenario,
        sets,
        output,
        cache=not no_cache,
        fidelity=fidelity,
        loaded=loaded,
        physics=physics,
    )
    kept: dict[str, Any] = {}
    if seal:
        from twin.cli.seals import sealed

        kept = sealed(found, output_folder)
    if output.json:
        output.document(found.kind.document(found) | kept)
    verdict, *others = found.kind.sentences(found)
    correction = getattr(found.report, "correction", None)
    output.sentence(verdict)
    for sentence in others:
        if output.tables or correction is None:
            output.sentence(sentence)
    whole = "improve" not in found.kind.refusals and found.kind.scope(loaded) is None
    if output.tables and whole and found.report.fits:
        words = ["twin", "improve", scenario, *(f"--set={one}" for one in sets)]
        asked = shlex.join(printable(one) for one in words)
        output.sentence(f"What would make it better? `{asked}` tries single edits and pairs.")
    if kept:
        output.sentence(kept["seal"]["words"])
    failed = say_failed(found.report.expectations, output)
    unmeasured = say_unmeasured(found.report.uncalibrated, output, strict=strict)
    if output.tables:
        output.show(*found.kind.tables(found))
    return exit_code(found.report, failed) or unmeasured


def check(*, scenario: str, sets: list[str], output: Output) -> int | None:
    """Is it valid, and does it fit? No simulation. If not, the nearest plans that do."""

    found = check_scenario(load_any(scenario, sets))
    output.answer(found.to_json(), found.sentences)
    failed = say_failed(found.expectations, output)
    if output.tables:
        notes = (*expectation_notes(found.expectations), *warning_notes(found.warnings))
        output.show(*found.tables, *notes)
    return exit_code(found, failed)
