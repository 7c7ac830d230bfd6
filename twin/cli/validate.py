"""`twin validate --reference`: does the twin predict what the reference trainer does here?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twin.cli.options import JsonOption, QuietOption, SetOption
from twin.cli.output import NOT_AS_EXPECTED, Output

if TYPE_CHECKING:
    from rich.table import Table

    from twin.loop import Outcome, Score

VERSION = 1
"""Version of the JSON document."""


class Mode(StrEnum):
    """How the reference keeps time."""

    PACED = "paced"
    BARE = "bare"


_LayoutsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="LAYOUTS",
        help="Scenarios, or names of those in scenarios/reference. If you write none, all of them.",
    ),
]
_ReferenceOption = Annotated[
    bool, typer.Option("--reference", help="Run the reference trainer on this machine.")
]
_ModeOption = Annotated[
    Mode | None,
    typer.Option(
        "--mode",
        help="Only layouts of this kind. paced: ranks sleep until the twin's time for their "
        "kernels is over, so that schedule and links are judged; bare: one rank per core, as fast "
        "as it goes.",
    ),
]
_StepsOption = Annotated[
    int | None,
    typer.Option(
        "--steps",
        min=2,
        help="Steps of each run; the first is not counted. 5 of a paced one, 8 of a bare one, if "
        "you write none.",
    ),
]
_RoundsOption = Annotated[
    int | None,
    typer.Option(
        "--rounds",
        min=1,
        help="Times through the list, so that no layout has all its steps in slow minutes of a "
        "shared machine. 1 for paced ones, 3 for bare ones, if you write none.",
    ),
]
_OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FOLDER", help="Where runs are kept; runs/validate if not given."
    ),
]
_AgainOption = Annotated[bool, typer.Option("--again", help="Run also what was run before.")]
_ReportOption = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Write a page (Markdown) of it.")
]
_TableOption = Annotated[
    Path | None,
    typer.Option(
        "--table",
        metavar="FILE",
        help="Write layouts and measured seconds as a table (CSV) that `twin calibrate` reads.",
    ),
]
_LimitOption = Annotated[
    float | None,
    typer.Option(
        "--limit",
        metavar="PERCENT",
        help="Exit with 5 if a median error, over the layouts of a mode, is above this.",
    ),
]


def validate(  # noqa: PLR0913  one parameter per option of the command line
    layouts: _LayoutsArgument = None,
    *,
    reference: _ReferenceOption = False,
    mode: _ModeOption = None,
    sets: SetOption = None,
    steps: _StepsOption = None,
    rounds: _RoundsOption = None,
    folder: _OutputOption = None,
    again: _AgainOption = False,
    report: _ReportOption = None,
    table: _TableOption = None,
    limit: _LimitOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Predict layouts, run them with the reference trainer, and compare.

    Every layout is a scenario. It is predicted and the prediction sealed; then the reference trains
    it on ranks of this machine, in network namespaces joined by links of the scenario's rate (root
    and iproute2; without them over loopback). Each checked prediction gives those after it an
    interval (`twin seals` has them all). A list that was interrupted goes on where it ended.
    """
    from twin.loop import Asked, find, predict_then_run, score
    from twin.loop.start import obstacle
    from twin.runs import runs_folder

    if not reference:
        raise typer.BadParameter("say against what: --reference", param_hint="--reference")
    output = Output(as_json, quiet)
    missing = obstacle()
    if missing:
        output.message(f"No link can be held to a rate here ({missing}): ranks use loopback.")
    wanted = None if mode is None else mode.value
    found = find(layouts or [], wanted, sets or [], shaped=not missing)
    place = (folder or runs_folder() / "validate").absolute()
    asked = Asked(place, not missing, steps, rounds, again)
    outcomes: list[Outcome] = []
    for one in predict_then_run(found, asked, output.message):
        outcomes.append(one)
        output.message(_line(one))
    scores = score(outcomes)
    output.document(
        {
            "version": VERSION,
            "scores": [one.to_json() for one in scores],
            "layouts": [one.to_json() for one in outcomes],
        }
    )
    for one in scores:
        output.sentence(_sentence(one))
    if output.tables:
        output.show(_table(outcomes))
    if report is not None:
        from twin.loop.page import write

        write(report, outcomes, scores)
        output.message(f"Written: {report}")
    if table is not None:
        from twin.loop.page import write_table

        write_table(table, found, outcomes)
        output.message(f"Written: {table}")
    if limit is not None and any(100 * one.median_error > limit for one in scores):
        raise typer.Exit(NOT_AS_EXPECTED)


def _line(one: Outcome) -> str:
    from twin.report.numbers import duration, signed

    drift = ", drifted" if one.drifted else ""
    return (
        f"{one.name}: {duration(one.predicted)} predicted, {duration(one.measured)} measured, "
        f"{signed(100 * one.error)} %{drift}"
    )


def _sentence(one: Score) -> str:
    told = (
        f"{one.layouts} {one.mode} layouts: median error {one.median_error:.1%}, largest "
        f"{one.largest_error:.1%}"
    )
    if one.rank_correlation is not None:
        told += f", rank correlation {one.rank_correlation:.3f}"
    if one.intervals:
        told += f"; {one.hits} of {one.intervals} sealed intervals held"
    return f"{told}; {one.drifted} drifted."


def _table(outcomes: list[Outcome]) -> Table:
    from rich.table import Table

    from twin.loop.page import COLUMNS, cells

    table = Table(*COLUMNS, box=None)
    for one in outcomes:
        table.add_row(*cells(one))
    return table
