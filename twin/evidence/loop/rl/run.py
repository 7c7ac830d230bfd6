"""Predict, then run: one loop after the other, each in a folder of its own that is named after what
is run, with the prediction as it was before. A loop that was run is not run again."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twin.errors import ScenarioError
from twin.evidence.loop.layouts import Layout
from twin.evidence.loop.rl.outcome import METRICS, LoopOutcome, measured, predicted
from twin.evidence.loop.rl.trainer import configuration, problems
from twin.evidence.loop.run import CONFIGURATION, LOG, RUN, SEAL, Asked
from twin.evidence.loop.start import start
from twin.kinds.iteration import IterationReport, plan, report, simulate
from twin.reports.numbers import duration


def predict_then_run(
    layouts: Sequence[Layout], asked: Asked, tell: Callable[[str], None] = lambda _: None
) -> Iterator[LoopOutcome]:
    """What came of each loop, once all rounds are over; all are predicted before the first is run.
    `tell` is told what runs.

    Raises ScenarioError where the reference does not do what one of them says, UsageError where a
    run fails.
    """
    prepared = [_Prepared.of(layout, asked) for layout in layouts]
    rounds = max((asked.rounds_of(one) for one in layouts), default=0)
    turns = [(turn, one) for turn in range(rounds) for one in prepared]
    for number, (turn, one) in enumerate(turns, 1):
        if not one.done(turn):
            seconds = duration(one.iterations * sum(one.predicted.values()))
            tell(f"{number} of {len(turns)}: {one.layout.name}, about {seconds}")
            one.run(turn)
        if turn + 1 == rounds:
            yield one.outcome(rounds)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A loop with its prediction, and what the trainer reads for it."""

    layout: Layout
    predicted: dict[str, float]
    configuration: dict[str, Any]
    folder: Path
    iterations: int

    @staticmethod
    def of(layout: Layout, asked: Asked) -> _Prepared:
        made = plan(layout.scenario)
        if found := problems(made):
            raise ScenarioError(layout.scenario.locate(found))
        answer = report(made, simulate(made))
        iterations = asked.steps_of(layout)
        written = configuration(made, Path(), iterations)
        folder = asked.output / f"{layout.name}-{_digest(answer, written)}"
        if asked.again:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        return _Prepared(layout, predicted(answer.phases), written, folder, iterations)

    def run(self, turn: int) -> None:
        """Write the prediction down, if that was not done before, and run once."""
        kept = self.folder / SEAL
        if not kept.exists():
            kept.write_text(json.dumps(self.predicted, indent=2) + "\n", encoding="utf-8")
        place = self._run(turn)
        train = {**self.configuration["train"], "output": str(place)}
        written = self.folder / CONFIGURATION
        text = json.dumps({**self.configuration, "train": train}, indent=2)
        written.write_text(text, encoding="utf-8")
        words = [sys.executable, "-m", "reference.rl", str(written), "--fresh"]
        start(words, self.folder / LOG)

    def done(self, turn: int) -> bool:
        """Whether this run came to its end before."""
        place = self._run(turn)
        return (place / METRICS).is_file() and len(measured(place)) == self.iterations - 1

    def outcome(self, rounds: int) -> LoopOutcome:
        """What came of all runs, beside the prediction as it was written down."""
        kept = json.loads((self.folder / SEAL).read_text(encoding="utf-8"))
        found = [one for turn in range(rounds) for one in measured(self._run(turn))]
        return LoopOutcome(self.layout.name, kept, tuple(found), self.folder)

    def _run(self, turn: int) -> Path:
        """The trainer's own folder."""
        return self.folder / (f"{RUN}-{turn + 1}" if turn else RUN)


def _digest(answer: IterationReport, written: dict[str, Any]) -> str:
    """Of what is predicted, and of what is run."""
    words = answer.hash + json.dumps(written, sort_keys=True)
    return hashlib.sha256(words.encode()).hexdigest()[:8]
