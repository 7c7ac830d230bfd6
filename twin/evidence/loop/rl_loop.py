"""The closed loop of reinforcement learning: predict an iteration, run iterations with the
reference in one process of this machine, and compare phases.

Each loop has a folder named after what is run, with the prediction as it was before. A finished
loop is not run again.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from twin.errors import Problem, ScenarioError, UsageError
from twin.evidence.loop.layouts import ReferenceLayout
from twin.evidence.loop.machine_profile import MachineProfile
from twin.evidence.loop.rl_trainer import configuration, problems
from twin.evidence.loop.run import LOG, SEAL, Followed, Prepared, RunOptions, run_rounds
from twin.evidence.loop.trainer import BEFORE_OTHERS, start
from twin.kinds.iteration.plan import plan
from twin.kinds.iteration.report import report
from twin.kinds.iteration.simulate import simulate
from twin.kinds.iteration.types import PHASES, IterationPlan, Phase
from twin.loading.files import read_bytes
from twin.reports.table import duration

METRICS: Final = "metrics.jsonl"
"""In the folder of a run."""
PAIRS: Final[Mapping[str, tuple[Phase, ...]]] = {
    "rollout": ("rollout", "rewards"),
    "switch": ("sleep", "load"),
    "score": ("prepare", "score", "swap"),
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
        text = read_bytes(path).decode()
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


def predict_then_run(
    layouts: Sequence[ReferenceLayout],
    options: RunOptions,
    tell: Callable[[str], None] = lambda _: None,
    machine: MachineProfile | None = None,
) -> Iterator[LoopOutcome]:
    """The outcome of each loop, once all rounds are over. `tell` receives progress; loops follow
    the pace of `machine`, or else all are predicted before the first runs.

    Raises ScenarioError where the reference cannot do what a layout states, UsageError where a run
    fails.
    """
    if machine is None:
        return run_rounds([_Loop(layout, options) for layout in layouts], tell)
    return run_rounds([Followed(one, options, machine, _Loop) for one in layouts], tell)


class _Loop(Prepared[LoopOutcome]):
    """A loop with its prediction."""

    def __init__(
        self, layout: ReferenceLayout, options: RunOptions, digest: str | None = None
    ) -> None:
        """`digest`: of the folder's name, where the prediction may change with the machine; None:
        that of what is run."""
        planned: IterationPlan = plan(layout.scenario)
        if found := problems(planned):
            raise ScenarioError(layout.scenario.locate(found))
        answer = report(planned, simulate(planned))
        self.predicted = predicted(answer.phases)
        self.configuration = configuration(planned, Path(), options.steps_of(layout))
        words = answer.hash + json.dumps(self.configuration, sort_keys=True)
        own = hashlib.sha256(words.encode()).hexdigest()[:8] if digest is None else digest
        super().__init__(layout, options, own)
        self._follows = digest is not None

    @property
    def about(self) -> str:
        return f"about {duration(self.steps * sum(self.predicted.values()))}"

    def run(self, turn: int) -> None:
        if not (self.folder / SEAL).exists():
            text = json.dumps(self.predicted, indent=2) + "\n"
            (self.folder / SEAL).write_text(text, encoding="utf-8")
        train = {**self.configuration["train"], "output": str(self.place(turn))}
        written = self.configured({**self.configuration, "train": train})
        words = [*BEFORE_OTHERS, sys.executable, "-m", "reference.rl", str(written), "--fresh"]
        start(words, self.folder / LOG)

    def done(self, turn: int) -> bool:
        place = self.place(turn)
        return (place / METRICS).is_file() and len(measured(place)) == self.steps - 1

    def outcome(self) -> LoopOutcome:
        stored = self.predicted if self._follows else json.loads(read_bytes(self.folder / SEAL))
        found = [one for turn in range(self.rounds) for one in measured(self.place(turn))]
        return LoopOutcome(self.layout.name, stored, tuple(found), self.folder)
