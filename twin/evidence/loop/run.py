"""Predict, then run: one layout after the other, each in a folder of its own.

Just before its own run each prediction is sealed, on the shelf of seals and in that folder, with
the interval that those which were checked before give it (`twin.evidence.live.seal`); after the run
it is checked, and so counts in the hit rate of intervals. A folder is named after what is run, so
that a list which was interrupted goes on where it ended, and a layout that was run is not run
again.

Where ranks sleep, the pace is one that this machine holds: passes are timed first, and the layout's
GPU is slowed until they fit. A run whose passes overran all the same is no measurement, and is
predicted and run again on a slower GPU.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
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
from twin.evidence.loop.machine_profile import MachineProfile, Paces
from twin.evidence.loop.outcome import (
    DRIFTED,
    LATE,
    MOST,
    LayoutOutcome,
    Stretches,
    compare_runs,
    computed,
    drift,
    overruns,
    pace_of,
)
from twin.evidence.loop.trainer import command, configuration, problems, start
from twin.evidence.measured.run_folder import MeasuredRun, is_run, read
from twin.evidence.measured.summary import summary
from twin.interop.export.base import render
from twin.loading import scenario_hash
from twin.loading.files import read_bytes, read_data
from twin.reports.table import duration

T = TypeVar("T")
ROOM: Final = 1.5
"""Times what stretches of passes took beyond their pace when it was tried, that a pace has room
for: it varies. OURS."""
FINER: Final = 1.05
"""Between two paces that are weighed. OURS."""
SLOWER, TRIES = 1.5, 4
"""How much slower a pace is that follows one which was overrun, and the most paces. OURS."""
SLOWED: Final = "slowed.json"
"""The paces that were tried, in times of the layout's own."""
STEADY: Final = 0.1
"""Change of the machine's pace during a run beyond which it is repeated. OURS."""
REPEATS: Final = 3
SEAL, PACE, CONFIGURATION, LOG = "prediction.json", "pace.json", "trainer.json", "log.txt"
RUN, TIMED, TIMED_STEPS = "run", "timed", 2
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
    machine: MachineProfile | None = None,
) -> Iterator[LayoutOutcome]:
    """The outcome of each layout, as soon as it is known. `tell` receives progress; bare layouts
    follow the pace of `machine`.

    Raises ScenarioError where the reference cannot do what a layout states, UsageError where a run
    fails.
    """
    for layout in layouts:
        if found := problems(plan(layout.scenario)):
            raise ScenarioError(found)
    return run_rounds([_prepared(layout, options, machine) for layout in layouts], tell)


def _prepared(
    layout: ReferenceLayout, options: RunOptions, machine: MachineProfile | None
) -> Prepared[LayoutOutcome]:
    if layout.mode == "paced":
        return _Paced(layout, options)
    if machine is None:
        return _Trained(layout, options)
    return Followed(layout, options, machine, _Trained)


class Prepared(ABC, Generic[T]):
    """A layout with its prediction and its folder, which a finished run leaves complete."""

    def __init__(self, layout: ReferenceLayout, options: RunOptions, digest: str) -> None:
        self.layout, self.shaped = layout, options.shaped
        self.steps, self.rounds = options.steps_of(layout), options.rounds_of(layout)
        self.folder = options.output / "-".join(filter(None, (layout.name, digest)))
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

    def steady(self, turn: int) -> bool:
        """Whether the machine was the same from the beginning of this run to its end, as far as the
        run tells."""
        del turn
        return True

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

    def __init__(
        self, layout: ReferenceLayout, options: RunOptions, digest: str | None = None
    ) -> None:
        """`digest`: of the folder's name; None: that of what is run."""
        self.predicted = ask(layout.scenario)
        profile = render(self.predicted, "pace")[""] if layout.mode == "paced" else b""
        how = (options.steps_of(layout), options.shaped)
        own = _digest(self.predicted, profile, how) if digest is None else digest
        super().__init__(layout, options, own)
        if profile:
            (self.folder / PACE).write_bytes(profile)

    @property
    def about(self) -> str:
        return f"{duration(self.steps * self.predicted.trace.step_ns / 1e9)} and the start of ranks"

    def run(self, turn: int) -> None:
        if not (self.folder / SEAL).exists():
            self._seal()
        self._start(self.place(turn), self.steps)

    def outcome(self) -> LayoutOutcome:
        """What came of all runs, beside the sealed prediction; kept with the seals."""
        sealed = read_seal(read_bytes(self.folder / SEAL), str(self.folder / SEAL))
        runs = [read(self.place(turn)) for turn in range(self.rounds)]
        found = compare_runs(self.layout, self.predicted, runs, shaped=self.shaped, sealed=sealed)
        measured = step_time(found.steps)
        assert measured is not None, "a run has two steps or more"
        began = datetime.fromtimestamp(runs[0].window(runs[0].steps[0])[0] / 1e9, UTC)
        if found.held:
            seals.add(check(sealed, measured, str(self.folder), began, datetime.now(UTC)))
        return found

    def done(self, turn: int) -> bool:
        """Whether this run came to its end before."""
        place = self.place(turn)
        return is_run(place) and read(place).steps[-1] == self.steps

    def steady(self, turn: int) -> bool:
        """Whether the halves of its steps are alike."""
        real = read(self.place(turn))
        return abs(drift([float(real.step_ns(one)) for one in summary(real).counted])) <= DRIFTED

    def timed(self) -> MeasuredRun:
        """Two steps, not sealed."""
        place = self.folder / TIMED
        if not (is_run(place) and read(place).steps[-1] == TIMED_STEPS):
            self._start(place, TIMED_STEPS)
        return read(place)

    def _start(self, place: Path, steps: int) -> None:
        paced = self.layout.mode == "paced"
        pace = self.folder / PACE if paced else None
        written = self.configured(configuration(self.predicted.plan, place, steps, pace))
        cluster = self.layout.scenario.cluster
        words = command(cluster, written, shaped=self.shaped, pinned=not paced)
        start(words, self.folder / LOG)

    def _seal(self) -> None:
        known = self.predicted.report.provenance
        basis = seals.basis(known.calibration, known.fidelity)
        sealed, _, _ = seals.keep(seal(self.predicted, basis))
        text = json.dumps(sealed.to_json(), indent=2) + "\n"
        (self.folder / SEAL).write_text(text, encoding="utf-8")


class Followed(Prepared[T]):
    """A layout that a profile of this machine predicts, whose pace is timed around every run.

    The prediction before a run is sealed. What is compared with the run is the one at the mean of
    the paces before and after. Where these differ too much, or steps drift, the run is repeated.
    """

    def __init__(
        self,
        layout: ReferenceLayout,
        options: RunOptions,
        machine: MachineProfile,
        prepare: Callable[[ReferenceLayout, RunOptions, str], Prepared[T]],
    ) -> None:
        super().__init__(layout, options, scenario_hash(layout.scenario)[:8])
        self._options = replace(options, output=self.folder, again=False)
        self._machine, self._prepare = machine, prepare

    @property
    def about(self) -> str:
        """How many steps a run has."""
        return f"{self.steps} steps, at the machine's pace"

    def done(self, turn: int) -> bool:
        """Whether the paces around this run are known."""
        return self._file(turn).exists()

    def run(self, turn: int) -> None:
        """Run between two timings of the pace, until the machine stays as it was."""
        tries = 0
        while not self.done(turn):
            before = self._machine.paces(self.layout)
            prepared = self._at([before])
            prepared.run(turn)
            after = self._machine.paces(self.layout)
            tries += 1
            steady = change(before, after) <= STEADY and prepared.steady(turn)
            if steady or tries == REPEATS:
                self._file(turn).write_text(json.dumps([before, after]), encoding="utf-8")

    def outcome(self) -> T:
        """All runs, at the mean of their paces."""
        paces = [pace for turn in range(self.rounds) for pace in read_data(self._file(turn))]
        return self._at(paces).outcome()

    def _at(self, paces: Sequence[Paces]) -> Prepared[T]:
        layout = self._machine.at(self.layout, paces, self.folder / "machine")
        return self._prepare(layout, self._options, "")

    def _file(self, turn: int) -> Path:
        return self.folder / f"paces-{turn + 1}.json"


def change(before: Paces, after: Paces) -> float:
    """How much slower or faster the machine has become, over all groups that are timed."""
    return abs(median(after[name] / before[name] for name in before) - 1)


class _Paced(Prepared[LayoutOutcome]):
    """A layout whose ranks sleep, at a pace that this machine holds."""

    def __init__(self, layout: ReferenceLayout, options: RunOptions) -> None:
        super().__init__(layout, options, scenario_hash(layout.scenario)[:8])
        self._options = replace(options, output=self.folder, again=False)
        self._note = self.folder / SLOWED
        self._slowed: list[float] = []
        self._trained = _Trained(layout, self._options)
        if self._note.exists():
            self._slow(*json.loads(read_bytes(self._note)))

    @property
    def about(self) -> str:
        return self._trained.about

    def done(self, turn: int) -> bool:
        return bool(self._slowed) and self._trained.done(turn) and not self._again(turn)

    def run(self, turn: int) -> None:
        if not self._slowed:
            self._slow(self._fitting())
        self._trained.run(turn)
        while self._again(turn):
            self._slow(self._slowed[-1] * SLOWER)
            for each in range(turn + 1):
                self._trained.run(each)

    def outcome(self) -> LayoutOutcome:
        found = self._trained.outcome()
        return replace(found, slowed=self._slowed[-1], tries=len(self._slowed))

    def _slow(self, *slowed: float) -> None:
        """Go on with the last of these paces."""
        self._slowed += slowed
        self._note.write_text(json.dumps(self._slowed), encoding="utf-8")
        self._trained = _Trained(self.layout.slowed(slowed[-1]), self._options)

    def _fitting(self) -> float:
        """How much slower than the layout's GPU ranks have to be, for their passes to fit."""
        found = computed(self._trained.timed(), (TIMED_STEPS,))
        pace = pace_of(self._trained.predicted)
        pairs = [(pace[key], one) for key, passes in found.items() for one in passes]
        return _fitting([one for one in pairs if sum(one[0])])  # a chunk may hold nothing

    def _again(self, turn: int) -> bool:
        """Whether a run overran its pace, and a slower one is left to try."""
        real = read(self._trained.place(turn))
        late = overruns(real, summary(real).counted, self._trained.predicted)
        return late > LATE and len(self._slowed) < TRIES


def _fitting(passes: Sequence[tuple[Stretches, Stretches]]) -> float:
    """How much slower a pace has to be, at least as it is, so that few enough passes overrun it:
    each by its pace, and by what its stretches took at that pace."""
    slowed = 1.0
    while sum(_late(slowed, *one) for one in passes) > LATE * len(passes):
        slowed *= FINER
    return slowed


def _late(slowed: float, pace: Stretches, taken: Stretches) -> bool:
    padded = (*pace, *[pace[-1]] * len(taken))
    least = [one + ROOM * max(0, took - one) for one, took in zip(padded, taken, strict=False)]
    length = sum(max(one, slowed * own) for one, own in zip(least, padded, strict=False))
    return length > MOST * slowed * sum(pace)


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
