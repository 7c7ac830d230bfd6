"""The folder that a measurement is kept in: `points/GROUP.jsonl`, each with the machine it is of,
written as soon as the group has ended. Groups measured before, on the same machine, stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reference.machine import Machine
from reference.measure.point import Point, read_point
from twin.errors import Problem, UsageError

SAME = ("name", "device", "software")
"""What must agree for two groups to be of one machine."""


def open_folder(folder: Path, machine: Machine) -> None:
    """Makes the folder. Raises `UsageError` where it cannot, or where it holds another machine's
    points."""
    try:
        (folder / "points").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"`{folder}` cannot be written: {error.strerror}"
        raise _refused("TW262", message, "name another folder with --output") from error
    for path in _files(folder):
        other = _head(path)
        own = machine.as_dict()
        differs = [key for key in SAME if other.get(key) != own[key]]
        if differs:
            key = differs[0]
            message = f"`{path}` is of another machine: {key} `{other.get(key)}`, not `{own[key]}`"
            raise _refused("TW262", message, "name another folder with --output, or a --name")


def write_group(
    folder: Path,
    group: str,
    machine: Machine,
    states: Mapping[str, Mapping[str, Any]],
    found: tuple[Iterable[Point], Iterable[object]],
) -> None:
    """One file: a line about the machine, its state before and after, and what was skipped; then a
    line per point."""
    points, skips = found
    head = {"machine": machine.as_dict(), **states, "skipped": [str(skip) for skip in skips]}
    lines = [json.dumps(head), *(point.text() for point in points)]
    path = folder / "points" / f"{group}.jsonl"
    new = path.with_suffix(".tmp")
    new.write_text("\n".join(lines) + "\n", encoding="utf-8")
    new.replace(path)


def read_points(folder: Path) -> list[Point]:
    """Every point in the folder. Raises `UsageError` for a line that is none."""
    return [point for path in _files(folder) for point in _points(path)]


def read_machine(folder: Path) -> Machine:
    """The machine that the folder's first file is of. Raises `UsageError` where there is none."""
    files = _files(folder)
    if not files:
        raise _refused("TW263", f"`{folder}` holds no points", "name a folder that was measured")
    return Machine(**_head(files[0]))


def _files(folder: Path) -> Sequence[Path]:
    return sorted((folder / "points").glob("*.jsonl"))


def _points(path: Path) -> list[Point]:
    points: list[Point] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()[1:], 2):
        try:
            points.append(read_point(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise _unreadable(path, number) from error
    return points


def _head(path: Path) -> Mapping[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8").splitlines()[0])["machine"]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise _unreadable(path, 1) from error


def _unreadable(path: Path, line: int) -> UsageError:
    message = f"line {line} of `{path}` is no measured point"
    return _refused("TW263", message, "remove the file, and measure its group again")


def _refused(code: str, message: str, fix: str) -> UsageError:
    return UsageError([Problem(code, "--output", message, fix)])
