"""`twin seals`: what was predicted before it was measured, and how often the intervals held."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import typer

from twin.answers import Run
from twin.cli.output import Output, complain
from twin.errors import Problem, UsageError, render
from twin.evidence.live import seal as sealing
from twin.evidence.live.seal import Seal, sentence
from twin.evidence.live.seals import SealFolder, add, basis, check, counting, find, keep, read_seals
from twin.evidence.live.step_time_estimate import StepTime
from twin.evidence.live.wording import checked, rate
from twin.reports import KPIS
from twin.reports.table import Table, duration, headed, lookup, show
from twin.units import QuantityError, parse

VERSION = 1
"""Version of the JSON document."""
_REFUSED = 2
"""Exit code where a seal was refused."""


def seals(
    *,
    action: Literal["list", "show", "check"],
    seal: str | None,
    measured: str | None,
    source: str,
    began: str | None,
    output: Output,
) -> int | None:
    """What was predicted before it was measured."""
    match action:
        case "list" if seal is None and measured is None:
            _list(output)
        case "show" if seal is not None and measured is None:
            _show(seal, output)
        case "check" if seal is not None and measured is not None and source.strip():
            _check(seal, (measured, source.strip(), began), output)
        case "check":
            message = "`twin seals check SEAL --measured 12.3s --source TEXT` checks one"
            raise typer.BadParameter(message, param_hint="ACTION")
        case _:
            message = "`twin seals` lists all, `twin seals show SEAL` shows one"
            raise typer.BadParameter(message, param_hint="ACTION")


def sealed(found: Run, folder: Path | None) -> dict[str, Any]:
    """Seal an answer, unless it is sealed already; what to say of it, as data."""

    known = found.report.provenance
    checked = basis(known.calibration, known.fidelity, folder)
    kept, path, new = keep(sealing.seal(found, checked), folder)
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

    try:
        found = parse(text, "seconds")
    except QuantityError:
        found = 0.0
    if found <= 0:
        message = f"`{text}` is no measured time"
        raise UsageError([Problem("TW346", "", message, "write `12.3s` or `450ms`")])
    return found


def _date(text: str) -> datetime:

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

    table = headed("", "Key figures", "", "80 % interval")
    for kpi in KPIS:
        span = seal.prediction.intervals.get(kpi.key)
        told = f"{show(span[0], kpi.unit)} to {show(span[1], kpi.unit)}" if span else "none"
        table.add_row(kpi.label, show(seal.prediction.kpis.get(kpi.key), kpi.unit), told)
    return table


def _origin(seal: Seal) -> Table:

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
