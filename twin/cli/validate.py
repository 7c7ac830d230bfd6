"""`twin validate`: published rows predicted and scored; with `--reference`, layouts predicted and
then run by the reference trainer here."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from twin.cli.options import JsonOption, QuietOption, SetOption
from twin.cli.output import Output


class Mode(StrEnum):
    """How the reference keeps time."""

    PACED = "paced"
    BARE = "bare"
    RL = "rl"


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
        "as it goes; rl: loops of reinforcement learning in one process.",
    ),
]
_StepsOption = Annotated[
    int | None,
    typer.Option(
        "--steps",
        min=2,
        help="Steps of each run, or iterations of a loop; the first is not counted. 5 of a paced "
        "one, 8 of a bare one, 6 of a loop, if you write none.",
    ),
]
_RoundsOption = Annotated[
    int | None,
    typer.Option(
        "--rounds",
        min=1,
        help="Times through the list, so that no layout has all its steps in slow minutes of a "
        "shared machine. 1 for paced ones, 3 for others, if you write none.",
    ),
]
_OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FOLDER", help="Where runs are kept; runs/validate if not given."
    ),
]
_AgainOption = Annotated[bool, typer.Option("--again", help="Run also what was run before.")]
_SuiteOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--suite",
        metavar="FILE",
        help="Published rows, or a folder of such files; repeat for more. Those that ship, if you "
        "write none.",
    ),
]
_OnlyOption = Annotated[
    str | None,
    typer.Option(
        "--only", metavar="TEXT", help="Only rows with this in their id, source, model or GPU."
    ),
]
_ProcessesOption = Annotated[
    int | None,
    typer.Option("--processes", min=1, help="At once; one per core, up to 8, if you write none."),
]
_LeaveOneOutOption = Annotated[
    bool,
    typer.Option(
        "--leave-one-out", help="Fit kernels and collectives again without each row, too."
    ),
]
_WriteOption = Annotated[
    Path | None,
    typer.Option("--write", metavar="FOLDER", help="Write the scenario of every row that has one."),
]
_ResidualsOption = Annotated[
    Path | None,
    typer.Option(
        "--residuals",
        metavar="FILE",
        help="Write what intervals rest on: errors of rows that were fitted, or lie near those.",
    ),
]
_AnswersOption = Annotated[
    Path | None,
    typer.Option("--answers", metavar="FILE", help="Write all answers as --shipped reads them."),
]
_ShippedOption = Annotated[
    bool,
    typer.Option(
        "--shipped", help="Tell what answers come to that ship with the twin, and predict nothing."
    ),
]
_ReportOption = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Write a page (Markdown) of it.")
]
_TableOption = Annotated[
    Path | None,
    typer.Option(
        "--table",
        metavar="FILE",
        help="Write answers as a table (CSV); of layouts one that `twin calibrate` reads.",
    ),
]
_LimitOption = Annotated[
    float | None,
    typer.Option(
        "--limit",
        metavar="PERCENT",
        help="Exit with 5 if a median error is above this: over families of rows in any metric, "
        "or over the layouts of a mode.",
    ),
]


def validate(  # noqa: PLR0913  one parameter per option of the command line
    layouts: _LayoutsArgument = None,
    *,
    suites: _SuiteOption = None,
    only: _OnlyOption = None,
    processes: _ProcessesOption = None,
    leave_one_out: _LeaveOneOutOption = False,
    write: _WriteOption = None,
    residuals: _ResidualsOption = None,
    answers: _AnswersOption = None,
    shipped: _ShippedOption = False,
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
    """Predict what was measured, and score it.

    Rows of published measurements become scenarios, are predicted and compared; rows that a fit has
    seen are told apart. With --reference, layouts are predicted and the predictions sealed; then
    the reference trains them on ranks of this machine, in network namespaces joined by links of the
    scenario's rate (root and iproute2; without them over loopback). A list of layouts that was
    interrupted goes on where it ended.
    """
    of_suites = {
        "--suite": suites, "--only": only, "--processes": processes, "--write": write,
        "--leave-one-out": leave_one_out, "--residuals": residuals, "--answers": answers,
        "--shipped": shipped,
    }  # fmt: skip
    of_layouts = {
        "LAYOUTS": layouts, "--mode": mode, "--set": sets, "--steps": steps, "--rounds": rounds,
        "--output": folder, "--again": again,
    }  # fmt: skip
    _refuse(of_suites if reference else of_layouts, reference=reference)
    output = Output(as_json, quiet)
    if reference:
        from twin.cli import validate_layouts as by_trying

        wanted = None if mode is None else mode.value
        request = by_trying.Request(layouts or [], wanted, sets or [], folder, steps, rounds, again)
        code = by_trying.run(request, by_trying.Files(report, table, limit), output)
    else:
        from twin.cli import validate_suite as by_rows

        if shipped:
            _refuse_predicting({name: of_suites[name] for name in by_rows.PREDICTING})
        files = by_rows.Files(report, table, write, residuals, answers)
        rows = tuple(suites or ())
        request = by_rows.Request(rows, only, processes, leave_one_out, files, limit, shipped)
        code = by_rows.run(request, output)
    if code:
        raise typer.Exit(code)


def _refuse(given: Mapping[str, object], *, reference: bool) -> None:
    """Refuse what belongs to the other of the two questions."""
    for name, value in given.items():
        if value:
            why = "is of published rows, and --reference asks for layouts that are run here"
            told = why if reference else "is of layouts that are run here: add --reference"
            raise typer.BadParameter(f"{name} {told}", param_hint=name)


def _refuse_predicting(given: Mapping[str, object]) -> None:
    """Refuse what needs rows to be predicted."""
    for name, value in given.items():
        if value:
            raise typer.BadParameter(
                f"{name} asks for predictions, and --shipped makes none", param_hint=name
            )
