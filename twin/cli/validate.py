"""`twin validate`: predicts and scores published rows; with `--reference`, predicts layouts and
runs them with the reference trainer here."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from twin.cli.options import JsonOption, QuietOption, SetOption
from twin.cli.output import Output


class Mode(StrEnum):
    """How the reference keeps time."""

    PACED = "paced"
    BARE = "bare"
    RL = "rl"


_LAYOUTS = "Scenarios, or names of those in scenarios/reference [default: all]."
_MODE = "Only layouts of this kind: paced (ranks sleep for the GPU's time), bare or rl (loops)."
_STEPS = "Steps of a run or iterations of a loop [default: paced 5, bare 8, rl 6]; first excluded."
_ROUNDS = "Repeat the list, so that slow minutes hit no layout alone [default: paced 1, others 3]."
_LIMIT = "Exit with 5 if a median error is above this, by metric over families or by mode."


def validate(  # noqa: PLR0913  one parameter per option of the command line
    layouts: Annotated[list[str] | None, Argument(metavar="LAYOUTS", help=_LAYOUTS)] = None,
    *,
    suites: Annotated[
        list[Path] | None,
        Option("--suite", metavar="FILE", help="Rows, or a folder of them [default: shipped]."),
    ] = None,
    only: Annotated[
        str | None,
        Option("--only", metavar="TEXT", help="Only rows with this in id, source, model or GPU."),
    ] = None,
    processes: Annotated[
        int | None,
        Option("--processes", min=1, help="Parallel processes [default: all cores, at most 8]."),
    ] = None,
    leave_one_out: Annotated[
        bool,
        Option("--leave-one-out", help="Refit kernels and collectives without each row, too."),
    ] = False,
    write: Annotated[
        Path | None,
        Option("--write", metavar="FOLDER", help="Write the scenario of every expressed row."),
    ] = None,
    residuals: Annotated[
        Path | None,
        Option("--residuals", metavar="FILE", help="Write the residuals behind the intervals."),
    ] = None,
    answers: Annotated[
        Path | None,
        Option("--answers", metavar="FILE", help="Write all answers as --shipped reads them."),
    ] = None,
    shipped: Annotated[
        bool, Option("--shipped", help="Score the shipped predictions; predict nothing.")
    ] = False,
    reference: Annotated[
        bool, Option("--reference", help="Run the reference trainer on this machine.")
    ] = False,
    mode: Annotated[Mode | None, Option("--mode", help=_MODE)] = None,
    sets: SetOption = None,
    steps: Annotated[int | None, Option("--steps", min=2, help=_STEPS)] = None,
    rounds: Annotated[int | None, Option("--rounds", min=1, help=_ROUNDS)] = None,
    folder: Annotated[
        Path | None,
        Option(
            "--output", "-o", metavar="FOLDER", help="Store runs here [default: runs/validate]."
        ),
    ] = None,
    again: Annotated[bool, Option("--again", help="Rerun finished layouts.")] = False,
    report: Annotated[
        Path | None, Option("--report", metavar="FILE", help="Write a page (Markdown).")
    ] = None,
    table: Annotated[
        Path | None,
        Option("--table", metavar="FILE", help="Write a table (CSV); of layouts, for calibrate."),
    ] = None,
    limit: Annotated[float | None, Option("--limit", metavar="PERCENT", help=_LIMIT)] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Predict what was measured, and score it.

    Rows of published measurements become scenarios, are predicted and compared. Fitted rows are
    listed apart. With --reference, layouts are predicted and the predictions sealed. Then the
    reference trains them on ranks of this machine, in network namespaces whose links have the
    scenario's rate (needs root and iproute2; otherwise over loopback). An interrupted list
    continues where it ended.
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
    if reference:
        _refuse(of_suites, "is for published rows; --reference runs layouts here")
    else:
        _refuse(of_layouts, "is for layouts that run here: add --reference")
    output = Output(as_json, quiet)
    if reference:
        from twin.cli import validate_layouts

        wanted = None if mode is None else mode.value
        request = validate_layouts.LayoutsRequest(
            layouts or [], wanted, sets or [], folder, steps, rounds, again, report, table, limit
        )
        code = validate_layouts.run(request, output)
    else:
        from twin.cli import validate_suite

        if shipped:
            predicting = {name: of_suites[name] for name in validate_suite.PREDICTING}
            _refuse(predicting, "needs predictions, and --shipped makes none")
        rows = tuple(suites or ())
        code = validate_suite.run(
            validate_suite.SuiteRequest(
                rows, only, processes, leave_one_out, limit, shipped, report, table, write,
                residuals, answers,
            ),
            output,
        )  # fmt: skip
    if code:
        raise typer.Exit(code)


def _refuse(given: Mapping[str, object], reason: str) -> None:
    """Refuse options that do not belong to the question."""
    for name, value in given.items():
        if value:
            raise typer.BadParameter(f"{name} {reason}", param_hint=name)
