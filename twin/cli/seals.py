"""`twin seals`: what was predicted before it was measured, and how often the intervals held."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from twin.cli.options import JsonOption, QuietOption
from twin.cli.output import Output

if TYPE_CHECKING:
    from twin.answers import Run
    from twin.evidence.live.seal import Seal
    from twin.evidence.live.seals import SealFolder
    from twin.reports.table import Table

VERSION = 1
"""Version of the JSON document."""
_REFUSED = 2
"""Exit code where a seal was refused."""


class SealAction(StrEnum):
    """What to do with sealed predictions."""

    LIST = "list"
    SHOW = "show"
    CHECK = "check"


def seals(  # noqa: PLR0913  one parameter per option of the command line
    action: Annotated[
        SealAction, Argument(metavar="ACTION", help="list, show or check [default: list].")
    ] = SealAction.LIST,
    seal: Annotated[
        str | None, Argument(metavar="SEAL", help="A seal's file, or the beginning of its digest.")
    ] = None,
    *,
    measured: Annotated[
        str | None,
        Option(
            "--measured", metavar="SECONDS", help="Check against this step time, such as 12.3s."
        ),
    ] = None,
    source: Annotated[
        str, Option("--source", metavar="TEXT", help="Cite who measured it, when and where.")
    ] = "",
    began: Annotated[
        str | None,
        Option(
            "--began",
            metavar="DATE",
            help="Start of the measured run, such as 2027-03-01T08:00:00+00:00.",
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """What was predicted before it was measured.

    Lists the predictions that `twin run --seal` wrote into `seals/` (or into the folder that
    TWIN_SEALS names) with their checks, and how often their intervals held; shows one; or checks
    one against a measured step. `twin track` checks them against runs. Exits with 2 when a seal was
    changed.
    """
    output = Output(as_json, quiet)
    match action:
        case SealAction.LIST if seal is None and measured is None:
            _list(output)
        case SealAction.SHOW if seal is not None and measured is None:
            _show(seal, output)
        case SealAction.CHECK if seal is not None and measured is not None and source.strip():
            _check(seal, (measured, source.strip(), began), output)
        case SealAction.CHECK:
            message = "`twin seals check SEAL --measured 12.3s --source TEXT` checks one"
            raise typer.BadParameter(message, param_hint="ACTION")
        case _:
            message = "`twin seals` lists all, `twin seals show SEAL` shows one"
            raise typer.BadParameter(message, param_hint="ACTION")


def sealed(found: Run, folder: Path | None) -> dict[str, Any]:
    """Seal an answer, unless it is sealed already; what to say of it, as data."""
    from twin.evidence.live.seal import seal, sentence
    from twin.evidence.live.seals import basis, keep

    known = found.report.provenance
    checked = basis(known.calibration, known.fidelity, folder)
    kept, path, new = keep(seal(found, checked), folder)
    when = "Sealed" if new else f"Sealed before, on {kept.sealed[:10]},"
    words = f"{when} as {kept.digest[:8]} in {path}: {sentence(kept)}."
    return {
        "seal": {
            "digest": kept.digest,
            "file": str(path),
            "sealed": kept.sealed,
            "new": new,
            "interval": kept.interval,
            "words": words,
        }
    }


def _list(output: Output) -> None:
    from twin.evidence.live.seals import read_seals
    from twin.evidence.live.wording import rate

    found = read_seals()
    output.document(
        {
            "version": VERSION,
            "folder": str(found.folder),
            "seals": [_row(seal, found) for seal in found.seals],
            "refused": [problem.as_dict() for problem in found.refused],
            "hit_rate": asdict(found.hit_rate) | {"share": found.hit_rate.share},
        }
    )
    output.sentence(rate(found.hit_rate))
    if output.tables and found.seals:
        output.show(_table(found))
    _refuse(found)


def _show(name: str, output: Output) -> None:
    from twin.evidence.live.seal import sentence
    from twin.evidence.live.seals import find, read_seals
    from twin.evidence.live.wording import checked

    seal = find(name)
    found = read_seals()
    output.document({"version": VERSION, "seal": seal.to_json(), **_row(seal, found)})
    output.sentence(f"{seal.name}, sealed {seal.sealed}: {sentence(seal)}.")
    for row in found.of(seal):
        output.sentence(f"{row.checked}, {row.run}: {checked(row)}")
    if output.tables:
        output.show(_figures(seal), _origin(seal))


def _check(name: str, measurement: tuple[str, str, str | None], output: Output) -> None:
    """Hold a seal against a step that somebody measured: seconds, source, when the run began."""
    from twin.evidence.live.seals import add, check, find, keep
    from twin.evidence.live.step_time_estimate import StepTime
    from twin.evidence.live.wording import checked

    measured, source, began = measurement
    seal = find(name)
    seconds = StepTime(_seconds(measured), None, 0)
    found = check(seal, seconds, source, _date(began) if began else None, datetime.now(UTC))
    keep(seal)
    new = add(found)
    document = asdict(found) | {"hit": found.hit, "new": new}
    output.document({"version": VERSION, "check": document})
    output.sentence(f"{seal.name}: {checked(found)}.")


def _seconds(text: str) -> float:
    from twin.errors import Problem, UsageError
    from twin.units import QuantityError, parse

    try:
        found = parse(text, "seconds")
    except QuantityError:
        found = 0.0
    if found <= 0:
        message = f"`{text}` is no measured time"
        raise UsageError([Problem("TW346", "", message, "write `12.3s` or `450ms`")])
    return found


def _date(text: str) -> datetime:
    from twin.errors import Problem, UsageError

    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.utcoffset() is None:
        message, fix = f"`{text}` is no moment", "write `2027-03-01T08:00:00+00:00`, with its zone"
        raise UsageError([Problem("TW346", "", message, fix)])
    return found.astimezone(UTC)


def _refuse(found: SealFolder) -> None:
    """Say what is no seal any more, whatever was asked."""
    if not found.refused:
        return
    from twin.cli.output import complain
    from twin.errors import render

    complain(render(found.refused))
    raise typer.Exit(_REFUSED)


def _row(seal: Seal, found: SealFolder) -> dict[str, Any]:
    """A seal with its checks as data."""
    return {
        "digest": seal.digest,
        "file": str(found.folder / seal.filename),
        "name": seal.name,
        "sealed": seal.sealed,
        "hash": seal.prediction.hash,
        "step_seconds": seal.seconds,
        "interval": seal.interval,
        "basis": asdict(seal.prediction.basis),
        "checks": [asdict(row) | {"hit": row.hit, "ratio": row.ratio} for row in found.of(seal)],
    }


def _table(found: SealFolder) -> Table:
    from twin.evidence.live.seals import counting
    from twin.evidence.live.wording import checked
    from twin.reports.numbers import duration
    from twin.reports.table import headed

    heads = ("Seal", "Sealed", "Scenario", "Step", "80 % interval", "Checked")
    table = headed("", *heads, left=range(len(heads)))
    for seal in reversed(found.seals):
        rows = found.of(seal)
        chosen = counting(rows)
        span = seal.interval
        told = "not yet" if not rows else "not known to be sealed before the run began"
        table.add_row(
            seal.digest[:8],
            seal.sealed[:10],
            seal.name,
            duration(seal.seconds),
            f"{duration(span[0])} to {duration(span[1])}" if span else "none",
            told if chosen is None else checked(chosen),
        )
    return table


def _figures(seal: Seal) -> Table:
    from twin.reports import KPIS
    from twin.reports.numbers import show
    from twin.reports.table import headed

    table = headed("", "Key figures", "", "80 % interval")
    for kpi in KPIS:
        span = seal.prediction.intervals.get(kpi.key)
        told = f"{show(span[0], kpi.unit)} to {show(span[1], kpi.unit)}" if span else "none"
        table.add_row(kpi.label, show(seal.prediction.kpis.get(kpi.key), kpi.unit), told)
    return table


def _origin(seal: Seal) -> Table:
    from twin.reports.table import lookup

    prediction = seal.prediction
    rows = {
        "Digest": seal.digest,
        "Scenario hash": prediction.hash,
        "By": f"twin {prediction.twin_version}, source {prediction.source}",
        "Fidelity": prediction.fidelity,
        "Calibration": prediction.calibration,
        "Command": seal.command or "(from Python)",
    }
    return lookup(rows, "Sealed", side="left")
