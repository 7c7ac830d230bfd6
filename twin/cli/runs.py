"""`twin runs`: what was answered before, and is kept in `runs/`?"""

from __future__ import annotations

import shlex
from dataclasses import asdict
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal

import typer

from twin.answers import StoredRun, find, older, remove, runs_folder, stored
from twin.cli.output import Output
from twin.errors import Problem, UsageError
from twin.reports import KPIS
from twin.reports.table import Table, duration, gibibytes, headed, lookup, show
from twin.units import QuantityError, parse

VERSION = 1
"""Version of the JSON document."""


def runs(
    *,
    action: Literal["list", "show", "remove"],
    hashes: list[str],
    everything: bool,
    older_than: str | None,
    output: Output,
) -> int | None:
    """What was answered before."""
    names = hashes
    if action != "remove" and (everything or older_than):
        raise typer.BadParameter("only `remove` takes --all and --older-than", param_hint="ACTION")
    chosen = sum(map(bool, (names, everything, older_than)))
    wrong = {
        "list": "`twin runs show HASH` shows one run" if names else "",
        "show": "" if names else "name the run to show",
        "remove": "" if chosen == 1 else "name hashes, --all, or --older-than AGE",
    }[action]
    if wrong:
        raise typer.BadParameter(wrong, param_hint="HASH" if action != "list" else "ACTION")
    if action == "list":
        _list(output)
    elif action == "show":
        _show(names, output)
    else:
        _remove(names, older_than, output)


def _list(output: Output) -> None:

    entries = stored()
    listed = [entry_document(entry) for entry in entries]
    output.document({"version": VERSION, "folder": str(runs_folder()), "runs": listed})
    if not entries:
        output.sentence(f"No run is stored in `{runs_folder()}`.")
    elif output.tables:
        output.show(entries_table(entries))
    else:
        for entry in entries:
            output.sentence(entry.path.name)


def _show(names: list[str], output: Output) -> None:
    """Each run as it was answered then, by the code of then."""

    entries = [find(name) for name in names]
    shown = [{"run": entry_document(entry), "report": entry.report} for entry in entries]
    output.document({"version": VERSION, "runs": shown})
    for entry, document in zip(entries, shown, strict=True):
        output.sentence(f"{entry.name}: {document['report']['verdict']}")
        if output.tables:
            output.show(figures_table(document["report"]), origin_table(entry))


def _remove(names: list[str], older_than: str | None, output: Output) -> None:

    if names:
        chosen = list({entry.path: entry for entry in map(find, names)}.values())
    else:
        chosen = stored() if older_than is None else older(_seconds(older_than))
    for entry in chosen:
        remove(entry.path)
    removed = [entry.path.name for entry in chosen]
    output.document({"version": VERSION, "removed": removed})
    size = _size(sum(entry.bytes for entry in chosen))
    output.sentence(f"Removed {len(removed)} stored run{'s' * (len(removed) != 1)}, {size}.")


def _seconds(age: str) -> float:

    try:
        return parse(age, "seconds")
    except QuantityError:
        message = f"`{age}` is not an age"
        raise UsageError([Problem("TW066", "", message, "write `30d` or `12h`")]) from None


def entry_document(entry: StoredRun) -> dict[str, Any]:
    """A stored run as data; `current` is false where other code gave the answer."""
    file, changes = asked(entry.command)
    told = {"file": file, "changes": changes, "current": entry.current}
    return asdict(entry) | {"path": str(entry.path)} | told


def asked(command: str | None) -> tuple[str | None, list[str]]:
    """The file or name of a stored command, and what `--set` changed in it; None and nothing where
    it was no command of ours."""

    try:
        words = shlex.split(command or "")
    except ValueError:  # somebody edited it
        words = []
    if words[:2] != ["twin", "run"] or len(words) < 3:
        return None, []
    return words[2], [value for word, value in pairwise(words) if word == "--set"]


def entries_table(entries: list[StoredRun]) -> Table:
    """The stored runs with the file of each and what was changed in it, one change per line."""

    heads = ("Hash", "Scenario", "File", "Changed in it", "Step", "Fits", "When", "Fidelity")
    table = headed("", *heads, left=range(len(heads)))
    for entry in entries:
        file, changes = asked(entry.command)
        table.add_row(
            *(entry.hash, entry.name, file or "(from Python)", "\n".join(changes) or "nothing"),
            *(duration(entry.step_seconds), "yes" if entry.fits else "no"),
            _when(entry.created) + ("" if entry.current else "\nother code"),
            entry.fidelity,
        )
    return table


def figures_table(report: dict[str, Any]) -> Table:
    """The key figures of a stored JSON report."""

    kpis = report["kpis"]
    return lookup({kpi.label: show(kpis.get(kpi.key), kpi.unit) for kpi in KPIS}, "Key figures")


def origin_table(entry: StoredRun) -> Table:
    """Where a stored answer came from, and where it lies."""

    same = "as it runs now" if entry.current else "other code than now: it would simulate again"
    rows = {
        "Files": f"{entry.path}, {_size(entry.bytes)}",
        "Answered": f"{_when(entry.created)} in {duration(entry.wall_seconds)}",
        "By": f"twin {entry.twin_version}, {same}",
        "Fidelity": entry.fidelity,
        "Command": entry.command or "(from Python)",
    }
    return lookup(rows, "Stored", side="left")


def _when(created: str) -> str:
    """Local time to the minute."""

    return f"{datetime.fromisoformat(created).astimezone():%Y-%m-%d %H:%M}"


def _size(count: int) -> str:

    return gibibytes(float(count))
