"""Predict, then run: one layout after the other, each in a folder of its own.

All are predicted before the first is run. Just before its own run each prediction is sealed, on the
shelf of seals and in that folder, with the interval that those which were checked before give it
(`twin.evidence.live.seal`); after the run it is checked, and so counts in the hit rate of
intervals. A folder is named after what is run, so that a list which was interrupted goes on where
it ended, and a layout that was run is not run again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from twin.answers import Run, ask
from twin.errors import ScenarioError
from twin.evidence.live import seals
from twin.evidence.live.seal import read as read_seal
from twin.evidence.live.seal import seal
from twin.evidence.live.seals import check
from twin.evidence.live.step_time_estimate import step_time
from twin.evidence.loop.layouts import Mode, ReferenceLayout
from twin.evidence.loop.outcome import LayoutOutcome, outcome
from twin.evidence.loop.trainer import command, configuration, problems, start
from twin.evidence.measured.run_folder import is_run, read
from twin.interop.export.base import render
from twin.planning import plan
from twin.reports.numbers import duration

SEAL, PACE, CONFIGURATION, LOG = "prediction.json", "pace.json", "trainer.json", "log.txt"
RUN: Final = "run"
"""The trainer's own folder; further ones have a number."""
STEPS: Final[Mapping[Mode, int]] = {"paced": 5, "bare": 8, "rl": 6}
ROUNDS: Final[Mapping[Mode, int]] = {"paced": 1, "bare": 3, "rl": 3}
"""Of a layout, steps (of a loop, iterations) and runs. Where ranks sleep one step is as the next;
others are as fast as the machine happens to be, for minutes at a time on one that others use, so
that no layout should have all of its steps in one such stretch. OURS."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How layouts are run."""

    output: Path
    shaped: bool
    steps: int | None = None
    """Of each run; None: `STEPS` of its mode."""
    rounds: int | None = None
    """Of each layout, once through the list after the other; None: `ROUNDS` of its mode."""
    again: bool = False
    """Run also what was run before."""

    def steps_of(self, layout: ReferenceLayout) -> int:
        """Steps of a layout's run, the first of which is not counted."""
        return self.steps or STEPS[layout.mode]

    def rounds_of(self, layout: ReferenceLayout) -> int:
        """How often a layout is run."""
        return self.rounds or ROUNDS[layout.mode]


def predict_then_run(
    layouts: Sequence[ReferenceLayout],
    options: RunOptions,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[LayoutOutcome]:
    """What came of each layout, as soon as it is known; all are predicted before the first is run.
    `tell` is told what runs.

    Raises ScenarioError where the reference does not do what one of them says, UsageError where a
    run fails.
    """
    for layout in layouts:
        _refuse(layout)
    prepared = [_Prepared.of(layout, options) for layout in layouts]
    most = max((one.rounds for one in prepared), default=0)
    turns = [(turn, one) for turn in range(most) for one in prepared if turn < one.rounds]
    for number, (turn, one) in enumerate(turns, 1):
        if not one.done(turn):
            seconds = duration(one.steps * one.predicted.trace.step_ns / 1e9)
            tell(f"{number} of {len(turns)}: {one.layout.name}, {seconds} and the start of ranks")
            one.run(turn)
        if turn + 1 == one.rounds:
            yield one.checked()


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A layout with its prediction, and how it is run."""

    layout: ReferenceLayout
    predicted: Run
    folder: Path
    steps: int
    rounds: int
    shaped: bool

    @staticmethod
    def of(layout: ReferenceLayout, options: RunOptions) -> _Prepared:
        """Predict, and write down what the trainer needs."""
        predicted, steps = ask(layout.scenario), options.steps_of(layout)
        written = render(predicted, "pace")[""] if layout.mode == "paced" else b""
        name = f"{layout.name}-{_digest(predicted, written, (steps, options.shaped))}"
        folder = options.output / name
        if options.again:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        if written:
            (folder / PACE).write_bytes(written)
        rounds = options.rounds_of(layout)
        return _Prepared(layout, predicted, folder, steps, rounds, options.shaped)

    def run(self, turn: int) -> None:
        """Seal, if that was not done before, and run once."""
        if not (self.folder / SEAL).exists():
            self._seal()
        pace_file = self.folder / PACE if self.layout.mode == "paced" else None
        place = self._run(turn)
        options = configuration(self.predicted.plan, place, self.steps, pace_file)
        written = self.folder / CONFIGURATION
        written.write_text(json.dumps(options, indent=2), encoding="utf-8")
        cluster, pinned = self.layout.scenario.cluster, self.layout.mode == "bare"
        start(command(cluster, written, shaped=self.shaped, pinned=pinned), self.folder / LOG)

    def checked(self) -> LayoutOutcome:
        """What came of all runs, beside the sealed prediction; kept with the seals."""
        sealed = read_seal((self.folder / SEAL).read_bytes(), str(self.folder / SEAL))
        runs = [read(self._run(turn)) for turn in range(self.rounds)]
        found = outcome(self.layout, self.predicted, runs, shaped=self.shaped, sealed=sealed)
        measured = step_time(found.steps)
        assert measured is not None, "a run has two steps or more"
        began = datetime.fromtimestamp(runs[0].window(runs[0].steps[0])[0] / 1e9, UTC)
        seals.add(check(sealed, measured, str(self.folder), began, datetime.now(UTC)))
        return found

    def done(self, turn: int) -> bool:
        """Whether this run came to its end before."""
        place = self._run(turn)
        return is_run(place) and read(place).steps[-1] == self.steps

    def _run(self, turn: int) -> Path:
        """The trainer's own folder."""
        return self.folder / (f"{RUN}-{turn + 1}" if turn else RUN)

    def _seal(self) -> None:
        known = self.predicted.report.provenance
        basis = seals.basis(known.calibration, known.fidelity)
        sealed, _, _ = seals.keep(seal(self.predicted, basis))
        text = json.dumps(sealed.to_json(), indent=2) + "\n"
        (self.folder / SEAL).write_text(text, encoding="utf-8")


def _refuse(layout: ReferenceLayout) -> None:
    found = problems(plan(layout.scenario))
    if found:
        raise ScenarioError(found)


def _digest(predicted: Run, pace: bytes, how: tuple[int, bool]) -> str:
    """Of what the trainer will do: `how` many steps, over shaped links or not."""
    words = (predicted.report.hash, *how)
    return hashlib.sha256(repr(words).encode() + _chunks(pace)).hexdigest()[:8]


def _chunks(pace: bytes) -> bytes:
    """A pace without where it came from."""
    if not pace:
        return b""
    found = json.loads(pace)
    return json.dumps([found["chunks"], found["optimizer"]]).encode()
