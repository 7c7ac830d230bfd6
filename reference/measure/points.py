"""Measured operations: what each did and how long it took, and the folder that keeps them.

A folder holds `points/GROUP.jsonl`: a line about the machine, then a line per point, written as
soon as the group has ended. Groups measured before, on the same machine, stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from reference.machine import Machine
from twin.errors import Problem, UsageError

Statistic = Literal["least", "median"]
"""Which of a point's seconds a fit takes. On a CPU that others use, the least is what the hardware
does and the median what the neighbours left of it; on a GPU of one's own they are close."""
SAME = ("name", "device", "software")
"""What must agree for two groups to be of one machine."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call over repeated samples: least, quartiles, most; how many samples, and
    calls in each; samples above the upper quartile by more than 1.5 times the quartiles' distance
    (Tukey 1977, Exploratory Data Analysis). On a CPU also the wall's least and median: the seconds
    are the process's own there (`reference.measure.clock`)."""

    least: float
    lower: float
    median: float
    upper: float
    most: float
    samples: int
    calls: int
    outliers: int
    wall_least: float | None = None
    wall_median: float | None = None

    def seconds(self, statistic: Statistic) -> float:
        """Seconds of one call."""
        return self.least if statistic == "least" else self.median


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """One operation of one shape: FLOP of its matrix products, bytes that it must move (each input
    read once, each output written once), and how many kernels the twin counts it as."""

    group: str
    op: str
    shape: Mapping[str, int]
    dtype: str
    flop: float
    bytes: float
    kernels: int
    timing: Timing

    def text(self) -> str:
        """The point as one line of JSON, its seconds in six digits."""
        fields = asdict(self) | {"shape": dict(self.shape)}
        fields["timing"] = {
            name: float(f"{value:.6g}") if isinstance(value, float) else value
            for name, value in fields["timing"].items()
        }
        return json.dumps(fields)

    def rate(self, statistic: Statistic) -> float:
        """FLOP per second."""
        return self.flop / self.timing.seconds(statistic)


def open_folder(folder: Path, machine: Machine) -> None:
    """Makes the folder. Raises `UsageError` where it cannot, or where it holds another machine's
    points."""
    try:
        (folder / "points").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"`{folder}` cannot be written: {error.strerror}"
        raise _refused("TW262", message, "name another folder with --output") from error
    own = machine.as_dict()
    for path in _files(folder):
        other = _head(path)
        for key in SAME:
            if other.get(key) != own[key]:
                message = f"`{path}` is of another machine: {key} `{other.get(key)}`, not "
                message += f"`{own[key]}`"
                fix = "name another folder with --output, or a --name"
                raise _refused("TW262", message, fix)


def write_group(
    folder: Path,
    group: str,
    machine: Machine,
    states: Mapping[str, Mapping[str, Any]],
    found: tuple[Iterable[MeasuredPoint], Iterable[object]],
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


def read_points(folder: Path) -> list[MeasuredPoint]:
    """Every point in the folder. Raises `UsageError` for a line that is none."""
    points: list[MeasuredPoint] = []
    for path in _files(folder):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()[1:], 2):
            try:
                fields = json.loads(line)
                timing = Timing(**fields["timing"])
                points.append(MeasuredPoint(**{**fields, "timing": timing}))
            except (ValueError, KeyError, TypeError) as error:
                raise _unreadable(path, number) from error
    return points


def read_machine(folder: Path) -> Machine:
    """The machine that the folder's first file is of. Raises `UsageError` where there is none."""
    files = _files(folder)
    if not files:
        raise _refused("TW263", f"`{folder}` holds no points", "name a folder that was measured")
    return Machine(**_head(files[0]))


def _files(folder: Path) -> Sequence[Path]:
    return sorted((folder / "points").glob("*.jsonl"))


def _head(path: Path) -> Mapping[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8").splitlines()[0])["machine"]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise _unreadable(path, 1) from error


def _unreadable(path: Path, line: int) -> UsageError:
    message = f"line {line} of `{path}` is not a measured point"
    return _refused("TW263", message, "remove the file, and measure its group again")


def _refused(code: str, message: str, fix: str) -> UsageError:
    return UsageError([Problem(code, "--output", message, fix)])
