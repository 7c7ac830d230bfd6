"""Phases of an iteration as they were predicted, beside what the reference measured of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from twin.errors import Problem, UsageError
from twin.kinds.iteration import PHASES
from twin.kinds.iteration.types import Phase

METRICS: Final = "metrics.jsonl"
"""In the folder of a run."""
PAIRS: Final[Mapping[str, tuple[Phase, ...]]] = {
    "rollout": ("rollout", "rewards"),
    "switch": ("sleep", "load"),
    "score": ("score",),
    "train": ("train",),
    "update": ("unload", "update"),
    "wake": ("wake",),
}
"""The reference's phases, and what of the twin's is compared with each."""
COUNTED_FROM: Final = 2
"""The first iteration is not counted: caches are cold then, and buffers new."""


@dataclass(frozen=True, slots=True)
class LoopOutcome:
    """One loop; seconds by the reference's phases."""

    name: str
    predicted: Mapping[str, float]
    measured: tuple[Mapping[str, float], ...]
    """Of each iteration that was counted, those of several runs behind each other."""
    folder: Path

    @property
    def middle(self) -> dict[str, float]:
        """Median of each phase."""
        return {name: median(one[name] for one in self.measured) for name in PAIRS}

    @property
    def errors(self) -> dict[str, float]:
        """Of each phase: predicted over measured, minus one."""
        return {name: self.predicted[name] / found - 1 for name, found in self.middle.items()}

    @property
    def seconds(self) -> tuple[float, float]:
        """An iteration's, predicted, and the median of those measured."""
        return sum(self.predicted.values()), median(sum(one.values()) for one in self.measured)

    @property
    def error(self) -> float:
        """Of the iteration."""
        predicted, measured = self.seconds
        return predicted / measured - 1

    def to_json(self) -> dict[str, Any]:
        """All of it, as plain data."""
        predicted, measured = self.seconds
        return {
            "name": self.name,
            "predicted_seconds": predicted,
            "measured_seconds": measured,
            "error": self.error,
            "predicted_phases": dict(self.predicted),
            "measured_phases": self.middle,
            "phase_errors": self.errors,
            "iterations": [dict(one) for one in self.measured],
            "folder": str(self.folder),
        }


def predicted(phases: Mapping[Phase, float]) -> dict[str, float]:
    """Seconds by the reference's phases, of those of a report."""
    left = {*PHASES} - {one for own in PAIRS.values() for one in own}
    assert not left, f"nothing is compared with {left}"
    return {name: sum(phases[one] for one in own) for name, own in PAIRS.items()}


def measured(folder: Path) -> list[dict[str, float]]:
    """Seconds by phase of each iteration that counts. Raises UsageError (TW373) where the run has
    none."""
    found = [_phases(line) for line in _lines(folder / METRICS) if line["kind"] == "iteration"]
    if len(found) < COUNTED_FROM:
        message = f"`{folder}` has {len(found)} iterations, of which the first is not counted"
        raise UsageError([Problem("TW373", "", message)])
    return found[COUNTED_FROM - 1 :]


def _lines(path: Path) -> Iterable[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        message = f"`{path}` cannot be read: {error.strerror}"
        raise UsageError([Problem("TW373", "", message)]) from None
    return [json.loads(line) for line in text.splitlines()]


def _phases(line: Mapping[str, Any]) -> dict[str, float]:
    own = dict(line["phases"])
    # The pass for log-probabilities is a part of training there.
    return {**own, "train": own["train"] - line["looked_s"], "score": line["looked_s"]}


def medians(outcomes: Sequence[LoopOutcome]) -> dict[str, float]:
    """Over loops: the median absolute error of each phase."""
    return {name: median(abs(one.errors[name]) for one in outcomes) for name in PAIRS}
