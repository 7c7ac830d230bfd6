"""`twin calibrate`: what do our own measurements say?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from twin.cli.options import JsonOption, QuietOption, SetOption
from twin.cli.output import Output

if TYPE_CHECKING:
    from twin.evidence.calibrate.result import Calibration
    from twin.evidence.calibrate.step_fit import Difference


def calibrate(  # noqa: PLR0913  one parameter per option of the command line
    source: Annotated[
        Path,
        Argument(
            metavar="SOURCE",
            help="Step times (.csv, .yaml, .parquet), PyTorch trace (.json[.gz]), or folder.",
        ),
    ],
    *,
    base: Annotated[
        str | None,
        Option(
            "--base", metavar="PROFILE", help="Stay near this profile [default: the GPU's own]."
        ),
    ] = None,
    gpu: Annotated[
        str | None, Option("--gpu", metavar="GPU", help="Name the GPU where the source does not.")
    ] = None,
    defaults: Annotated[
        str | None, Option("--defaults", metavar="SCENARIO", help="Defaults for missing columns.")
    ] = None,
    sets: SetOption = None,
    factors: Annotated[
        str | None,
        Option(
            "--factors",
            metavar="A,B",
            help="Fit only these: compute, attention, memory, host, links, launch.",
        ),
    ] = None,
    name: Annotated[str | None, Option("--name", metavar="NAME", help="Name the profile.")] = None,
    path: Annotated[
        Path | None,
        Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Write a catalog usable by scenarios in FOLDER, and JSON.",
        ),
    ] = None,
    diff: Annotated[
        str | None,
        Option("--diff", metavar="PROFILE", help="Compare the result with this profile."),
    ] = None,
    scenario: Annotated[
        str | None,
        Option(
            "--scenario",
            metavar="SCENARIO",
            help="With --diff: show each difference for this step.",
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """A profile from your own measurements: kernels, a trace or step times.

    Fits as few numbers as the rows can tell, near a base profile, and says how far rows are missed
    that a fit has not seen, before and after.
    """
    from twin.evidence.calibrate import require_scipy

    require_scipy()
    from twin.evidence.calibrate.calibrate import CalibrationRequest
    from twin.evidence.calibrate.calibrate import calibrate as run

    output = Output(as_json, quiet)
    wanted = tuple(one.strip() for one in factors.split(",") if one.strip()) if factors else None
    request = CalibrationRequest(source, base, gpu, defaults, tuple(sets or ()), wanted, name)
    found = run(request, _teller(output))
    other = _difference(found, diff, source, scenario) if diff else None
    written = _written(found, path)
    document: dict[str, Any] = found.to_json() | {"written": [str(file) for file in written]}
    output.document(document | {"difference": other.to_json() if other else None})
    output.sentence(_verdict(found))
    if output.tables:
        from twin.cli import calibration_tables as tables

        output.show(*tables.calibration_tables(found))
        if other:
            output.show(tables.difference_table(other))
    if found.notes:
        output.message("\n".join(f"Note: {note}." for note in found.notes))
    for file in written:
        output.message(f"Written: {file}")


def _teller(output: Output) -> Any:
    """Says on stderr what a fit is doing, where a person watches."""
    if not output.progress:
        return None

    def tell(what: str) -> None:
        sys.stderr.write(f"\r\x1b[2K{what}")
        sys.stderr.flush()

    return tell


def _difference(found: Calibration, diff: str, source: Path, scenario: str | None) -> Difference:
    from twin.cli.answer import training
    from twin.evidence.calibrate.step_fit import difference
    from twin.loading import load_any, load_part

    near = [source if source.is_dir() else source.parent, Path()]
    old = load_part("calibrations", diff, near).spec
    own = training(load_any(scenario)) if scenario else None
    return difference(old, found.profile, own)


def _written(found: Calibration, path: Path | None) -> list[Path]:
    if path is None:
        return []
    from twin.evidence.calibrate.write import write

    return write(found, path)


def _verdict(found: Calibration) -> str:
    """The answer in words."""
    before, after = found.errors("before", "fit"), found.errors("left_out", "fit")
    checks = found.errors("after", "check")
    numbers = f"{found.fitted} number{'' if found.fitted == 1 else 's'}"
    text = f"{found.name}: {numbers} fitted"
    if before and after:
        text += (
            f" on {before.rows} rows of {found.stamp.device}; rows left out are missed by "
            f"{after.mean:.1%}, {before.mean:.1%} by the base {found.stamp.base}"
        )
    if checks:
        text += f"; {checks.rows} rows that no fit saw by {checks.mean:.1%}"
    return text + "."
