"""What a validation leaves as files: a table of its answers, and its rows as scenarios."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from twin.errors import Problem, UsageError
from twin.evidence.validate.answer import Answer
from twin.evidence.validate.baselines import BASELINES
from twin.evidence.validate.play import settled, text_of, write
from twin.evidence.validate.row import Row, Unreadable
from twin.evidence.validate.summary import Summary
from twin.evidence.validate.training import express

_COLUMNS: Final[tuple[str, ...]] = (
    "id", "category", "use", "source", "model", "gpu", "gpus", "precision", "stack", "metric",
    "status", "predicted", "measured", "error", "low", "high", *BASELINES, "left_out",
    "reproducible", "reason", "assumed",
)  # fmt: skip
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9._+-]+")


def write_table(file: Path, summary: Summary) -> None:
    """Write all answers as a table (CSV). Raises UsageError where that is impossible."""
    others = {name: {one.id: one for one in own} for name, own in summary.baselines.items()}
    left_out = {(one.id, one.metric): one.predicted for one in summary.left_out}
    try:
        with file.open("w", encoding="utf-8", newline="") as text:
            table: csv.DictWriter[str] = csv.DictWriter(
                text, _COLUMNS, lineterminator="\n", extrasaction="ignore"
            )
            table.writeheader()
            for one in summary.answers:
                said: dict[str, Any] = one.to_json() | {"assumed": "; ".join(one.assumed)}
                if one.interval is not None:
                    said |= {"low": one.interval[0], "high": one.interval[1]}
                for name, own in others.items() if one.metric == "step_seconds" else ():
                    said[name] = own[one.id].predicted if one.id in own else None
                said["left_out"] = left_out.get((one.id, one.metric))
                table.writerow(said)
    except OSError as error:
        raise _unwritten(file, "--table", error) from None


def write_scenarios(folder: Path, rows: Sequence[Row], answers: Iterable[Answer]) -> int:
    """Write the scenario of every training row that has one, and return how many. Raises
    UsageError where that is impossible."""
    expressed = {
        one.id for one in answers if one.category == "train_step" and one.predicted is not None
    }
    taken: dict[str, int] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for row in rows:
            if row.id in expressed and row.category == "train_step":
                write(settled(express(row))[0], folder, _name(row, taken))
    except (OSError, Unreadable) as error:
        raise _unwritten(folder, "--write", error) from None
    return sum(taken.values())


@dataclass(frozen=True, slots=True)
class Plan:
    """The scenario of a row as a planner opens it: a file's name and text, and what is changed in
    the catalog parts that the text names, as `--set` takes it."""

    name: str
    text: str
    sets: tuple[tuple[str, str], ...]


def plan_of(row: Row) -> Plan:
    """The scenario that a training row was predicted with. Raises `Unreadable` where it has
    none."""
    found, _ = settled(express(row))
    return Plan(f"{file_name(row.id)}.yaml", text_of(found.tree), tuple(_leaves(found.over, "")))


def _leaves(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(cast("Mapping[str, Any]", value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def file_name(row_id: str) -> str:
    """What a row is called as a file, without its ending."""
    return _NO_NAME.sub("-", row_id).strip(".-") or "row"


def _name(row: Row, taken: dict[str, int]) -> str:
    """The same; rows of one name are numbered."""
    name = file_name(row.id)
    taken[name] = taken.get(name, 0) + 1
    return name if taken[name] == 1 else f"{name}-{taken[name]}"


def _unwritten(place: Path, option: str, error: Exception) -> UsageError:
    why = error.strerror if isinstance(error, OSError) else str(error)
    return UsageError([Problem("TW063", option, f"`{place}` cannot be written: {why}")])
