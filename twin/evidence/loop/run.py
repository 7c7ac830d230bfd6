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
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from twin.answers import Run, ask
from twin.engine import plan
from twin.errors import ScenarioError
from twin.evidence.live import seals
from twin.evidence.live.seal import read as read_seal
from twin.evidence.live.seal import seal
from twin.evidence.live.seals import check
from twin.evidence.live.step_time_estimate import step_time
from twin.evidence.loop.layouts import Mode, ReferenceLayout
from twin.evidence.loop.outcome import LayoutOutcome, compare_runs
from twin.evidence.loop.trainer import command, configuration, problems, start
from twin.evidence.measured.run_folder import is_run, read
from twin.interop.export.base import render
from twin.loading.files import read_bytes
from twin.reports.table import duration

T = TypeVar("T")
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
    """The outcome of each layout, as soon as it is known. All are predicted before the first runs.
    `tell` receives progress.

    Raises ScenarioError where the reference cannot do what a layout states, UsageError where a run
    fails.
    """
    for layout in layouts:
        if found := problems(plan(layout.scenario)):
            raise ScenarioError(found)
    return run_rounds([_Trained(layout, options) for layout in layouts], tell)


class Prepared(ABC, Generic[T]):
    """A layout with its prediction and its folder, which a finished run leaves complete."""

    def __init__(self, layout: ReferenceLayout, options: RunOptions, digest: str) -> None:
        self.layout, self.shaped = layout, options.shaped
        self.steps, self.rounds = options.steps_of(layout), options.rounds_of(layout)
        self.folder = options.output / f"{layout.name}-{digest}"
        if options.again:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)

    def place(self, turn: int) -> Path:
        """The trainer's own folder."""
        return self.folder / (f"{RUN}-{turn + 1}" if turn else RUN)

    def configured(self, document: dict[str, Any]) -> Path:
        """The file with the trainer's configuration."""
        file = self.folder / CONFIGURATION
        file.write_text(json.dumps(document, indent=2), encoding="utf-8")
        return file

    @property
    @abstractmethod
    def about(self) -> str:
        """How long a run takes."""

    @abstractmethod
    def done(self, turn: int) -> bool:
        """Whether this run finished before."""

    @abstractmethod
    def run(self, turn: int) -> None:
        """Store the prediction, unless that was done before, and run once."""

    @abstractmethod
    def outcome(self) -> T:
        """The result of all runs, compared with the stored prediction."""


def run_rounds(prepared: Sequence[Prepared[T]], tell: Callable[[str], None]) -> Iterator[T]:
    """Run each layout so many times, once through the list after the other; outcomes as they are
    known."""
    most = max((one.rounds for one in prepared), default=0)
    turns = [(turn, one) for turn in range(most) for one in prepared if turn < one.rounds]
    for number, (turn, one) in enumerate(turns, 1):
        if not one.done(turn):
            tell(f"{number} of {len(turns)}: {one.layout.name}, {one.about}")
            one.run(turn)
        if turn + 1 == one.rounds:
            yield one.outcome()


class _Trained(Prepared[LayoutOutcome]):
    """A layout that the trainer runs on ranks."""

    def __init__(self, layout: ReferenceLayout, options: RunOptions) -> None:
        self.predicted = ask(layout.scenario)
        profile = render(self.predicted, "pace")[""] if layout.mode == "paced" else b""
        how = (options.steps_of(layout), options.shaped)
        super().__init__(layout, options, _digest(self.predicted, profile, how))
        if profile:
            (self.folder / PACE).write_bytes(profile)

    @property
    def about(self) -> str:
        return f"{duration(self.steps * self.predicted.trace.step_ns / 1e9)} and the start of ranks"

    def run(self, turn: int) -> None:
        if not (self.folder / SEAL).exists():
            self._seal()
        pace_file = self.folder / PACE if self.layout.mode == "paced" else None
        place = self.place(turn)
        written = self.configured(configuration(self.predicted.plan, place, self.steps, pace_file))
        cluster, pinned = self.layout.scenario.cluster, self.layout.mode == "bare"
        start(command(cluster, written, shaped=self.shaped, pinned=pinned), self.folder / LOG)

    def outcome(self) -> LayoutOutcome:
        """What came of all runs, beside the sealed prediction; kept with the seals."""
        sealed = read_seal(read_bytes(self.folder / SEAL), str(self.folder / SEAL))
        runs = [read(self.place(turn)) for turn in range(self.rounds)]
        found = compare_runs(self.layout, self.predicted, runs, shaped=self.shaped, sealed=sealed)
        measured = step_time(found.steps)
        assert measured is not None, "a run has two steps or more"
        began = datetime.fromtimestamp(runs[0].window(runs[0].steps[0])[0] / 1e9, UTC)
        seals.add(check(sealed, measured, str(self.folder), began, datetime.now(UTC)))
        return found

    def done(self, turn: int) -> bool:
        """Whether this run came to its end before."""
        place = self.place(turn)
        return is_run(place) and read(place).steps[-1] == self.steps

    def _seal(self) -> None:
        known = self.predicted.report.provenance
        basis = seals.basis(known.calibration, known.fidelity)
        sealed, _, _ = seals.keep(seal(self.predicted, basis))
        text = json.dumps(sealed.to_json(), indent=2) + "\n"
        (self.folder / SEAL).write_text(text, encoding="utf-8")


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
