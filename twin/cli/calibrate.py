"""`twin calibrate`: what do our own measurements say?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twin.cli.options import JsonOption, QuietOption, SetOption
from twin.cli.output import Output

if TYPE_CHECKING:
    from twin.evidence.calibrate.result import Calibration
    from twin.evidence.calibrate.step_fit import Difference

_SourceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE",
        help="A table of step times (.csv, .yaml, .parquet), a PyTorch profiler trace (.json, "
        ".json.gz), or a folder of `python -m reference.measure`.",
    ),
]
_BaseOption = Annotated[
    str | None,
    typer.Option("--base", metavar="PROFILE", help="Stay near this profile, not the GPU's own."),
]
_GpuOption = Annotated[
    str | None,
    typer.Option("--gpu", metavar="GPU", help="The GPU of a trace or a folder that names none."),
]
_DefaultsOption = Annotated[
    str | None,
    typer.Option(
        "--defaults", metavar="SCENARIO", help="What the columns of a table leave out is as here."
    ),
]
_ScenarioOption = Annotated[
    str | None,
    typer.Option(
        "--scenario",
        metavar="SCENARIO",
        help="With --diff: what each difference is worth for the step of this one.",
    ),
]
_FactorsOption = Annotated[
    str | None,
    typer.Option(
        "--factors",
        metavar="A,B",
        help="Fit these and no others: compute, attention, memory, host, links, launch.",
    ),
]
_NameOption = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="What the profile is called.")
]
_OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FOLDER",
        help="Write FOLDER/catalog, which scenarios in FOLDER can name, and the answer as JSON.",
    ),
]
_DiffOption = Annotated[
    str | None,
    typer.Option("--diff", metavar="PROFILE", help="Say where the result differs from a profile."),
]


def calibrate(  # noqa: PLR0913  one parameter per option of the command line
    source: _SourceArgument,
    *,
    base: _BaseOption = None,
    gpu: _GpuOption = None,
    defaults: _DefaultsOption = None,
    sets: SetOption = None,
    factors: _FactorsOption = None,
    name: _NameOption = None,
    path: _OutputOption = None,
    diff: _DiffOption = None,
    scenario: _ScenarioOption = None,
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
