"""`twin export`: a run as a file for other tools and other people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twin.cli.options import (
    Fidelity,
    FidelityOption,
    JsonOption,
    NoCacheOption,
    QuietOption,
    SetOption,
)
from twin.cli.output import Output
from twin.export import formats

if TYPE_CHECKING:
    from twin.runs import Run

VERSION = 1
"""Version of the JSON document."""

_SubjectArgument = Annotated[
    str,
    typer.Argument(metavar="SCENARIO", help="A scenario, or the hash of a stored run."),
]
_FormatOption = Annotated[
    str, typer.Option("--format", metavar="FORMAT", help=f"One of: {', '.join(formats())}.")
]
_OutputOption = Annotated[
    Path,
    typer.Option(
        "--output", "-o", metavar="PATH", help="File to write; compressed if it ends in .gz."
    ),
]
_ForceOption = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]


def export(  # noqa: PLR0913, PLR0917  one parameter per option of the command line
    subject: _SubjectArgument,
    form: _FormatOption,
    path: _OutputOption,
    sets: SetOption = None,
    force: _ForceOption = False,
    fidelity: FidelityOption = Fidelity.EVENTS,
    no_cache: NoCacheOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """A run as a file: timeline, tables or report.

    Runs the scenario, or takes a stored run by the beginning of its hash. Every file says which
    scenario, version and command it came from. A plan that does not fit is exported all the same.
    """
    from twin.export.base import check, write
    from twin.report import verdict
    from twin.report.numbers import gibibytes

    check(form, path, force=force)
    output = Output(as_json, quiet)
    run = _recalled(subject, sets or [], output) or _answered(
        subject, sets or [], output, fidelity, cache=not no_cache
    )
    written = write(run, form, path)
    files = [{"path": str(file), "bytes": file.stat().st_size} for file in written]
    output.document(
        {"version": VERSION, "format": form, "hash": run.report.hash, "fits": run.report.fits}
        | {"files": files}
    )
    for file in written:
        output.sentence(f"Wrote {file}, {gibibytes(file.stat().st_size)}.")
    output.message(verdict(run.report))


def _recalled(subject: str, sets: list[str], output: Output) -> Run | None:
    """The stored run that the subject begins the name of; None where it is a scenario."""
    from twin.errors import UsageError
    from twin.loading.files import find_scenario
    from twin.runs import find, recall, run

    try:
        find_scenario(subject)
    except UsageError as no_scenario:
        try:
            entry = find(subject)
        except UsageError as no_run:
            if any(problem.code == "TW061" for problem in no_run.problems):
                raise
            raise no_scenario from None
    else:
        return None
    if sets:
        message = "--set changes a scenario; a stored run is what it is"
        raise typer.BadParameter(message, param_hint="--set")
    if not entry.current:
        output.message(f"{subject} was answered by other code than runs now: it is played again.")
    return run(recall(entry), fidelity=entry.fidelity, command=entry.command)


def _answered(
    subject: str, sets: list[str], output: Output, fidelity: Fidelity, *, cache: bool
) -> Run:
    from twin.cli.answer import answered

    return answered(subject, sets, output, cache=cache, fidelity=fidelity)
