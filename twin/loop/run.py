"""Predict, then run: one layout after the other, each in a folder of its own.

All are predicted before the first is run. Just before its own run each prediction is sealed, on the
shelf of seals and in that folder, with the interval that those which were checked before give it
(`twin.live.interval`); after the run it is checked, and so counts in the hit rate of intervals. A
folder is named after what is run, so that a list which was interrupted goes on where it ended, and
a layout that was run is not run again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from twin.errors import ScenarioError
from twin.export.base import render
from twin.live import seals
from twin.live.check import check
from twin.live.pace import pace
from twin.live.seal import Seal, seal
from twin.live.seal import read as read_seal
from twin.loop.layouts import Layout
from twin.loop.outcome import Outcome, outcome
from twin.loop.start import command, start
from twin.loop.trainer import configuration, problems
from twin.measured import is_run, read
from twin.plan import plan
from twin.report.numbers import duration
from twin.runs import Run, run

SEAL, PACE, CONFIGURATION, LOG = "prediction.json", "pace.json", "trainer.json", "log.txt"
RUN: Final = "run"
"""The trainer's own folder."""


@dataclass(frozen=True, slots=True)
class Asked:
    """How layouts are run."""

    output: Path
    steps: int
    shaped: bool
    again: bool = False
    """Run also what was run before."""


def predict_then_run(
    layouts: Sequence[Layout], asked: Asked, tell: Callable[[str], None] = lambda _: None
) -> Iterator[Outcome]:
    """What came of each layout, as soon as it is known; all are predicted before the first is run.
    `tell` is told what runs.

    Raises ScenarioError where the reference does not do what one of them says, UsageError where a
    run fails.
    """
    for layout in layouts:
        _refuse(layout)
    prepared = [_Prepared.of(layout, asked) for layout in layouts]
    for number, one in enumerate(prepared, 1):
        if not _done(one.folder, asked.steps):
            seconds = duration(asked.steps * one.predicted.trace.step_ns / 1e9)
            tell(
                f"{number} of {len(prepared)}: {one.layout.name}, {seconds} and the start of ranks"
            )
        yield one.run(asked)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A layout with its prediction."""

    layout: Layout
    predicted: Run
    folder: Path

    @staticmethod
    def of(layout: Layout, asked: Asked) -> _Prepared:
        """Predict, and write down what the trainer needs."""
        predicted = run(layout.scenario)
        paced = layout.mode == "paced"
        written_pace = render(predicted, "pace")[""] if paced else b""
        folder = asked.output / f"{layout.name}-{_digest(predicted, written_pace, asked)}"
        if asked.again:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        if paced:
            (folder / PACE).write_bytes(written_pace)
        written = configuration(
            predicted.plan, folder / RUN, asked.steps, folder / PACE if paced else None
        )
        (folder / CONFIGURATION).write_text(json.dumps(written, indent=2), encoding="utf-8")
        return _Prepared(layout, predicted, folder)

    def run(self, asked: Asked) -> Outcome:
        """Seal, run and check it, unless it was run; compare."""
        if _done(self.folder, asked.steps):
            return self._outcome(asked, read_seal((self.folder / SEAL).read_bytes(), SEAL))
        sealed, began = self._seal(), datetime.now(UTC)
        cluster = self.layout.scenario.cluster
        written, pinned = self.folder / CONFIGURATION, self.layout.mode == "bare"
        words = command(cluster, written, shaped=asked.shaped, pinned=pinned)
        start(words, self.folder / LOG)
        found = self._outcome(asked, sealed)
        measured = pace(found.steps)
        assert measured is not None, "a run has two steps or more"
        seals.add(check(sealed, measured, str(self.folder / RUN), began, datetime.now(UTC)))
        return found

    def _seal(self) -> Seal:
        known = self.predicted.report.provenance
        basis = seals.basis(known.calibration, known.fidelity)
        sealed, _, _ = seals.keep(seal(self.predicted, basis))
        text = json.dumps(sealed.to_json(), indent=2) + "\n"
        (self.folder / SEAL).write_text(text, encoding="utf-8")
        return sealed

    def _outcome(self, asked: Asked, sealed: Seal) -> Outcome:
        folder = self.folder / RUN
        return outcome(self.layout, self.predicted, folder, shaped=asked.shaped, sealed=sealed)


def _refuse(layout: Layout) -> None:
    found = problems(plan(layout.scenario))
    if found:
        raise ScenarioError(found)


def _digest(predicted: Run, pace: bytes, asked: Asked) -> str:
    """Of what the trainer will do."""
    words = (predicted.report.hash, asked.steps, asked.shaped)
    return hashlib.sha256(repr(words).encode() + _chunks(pace)).hexdigest()[:8]


def _chunks(pace: bytes) -> bytes:
    """A pace without where it came from."""
    if not pace:
        return b""
    found = json.loads(pace)
    return json.dumps([found["chunks"], found["optimizer"]]).encode()


def _done(folder: Path, steps: int) -> bool:
    return is_run(folder / RUN) and read(folder / RUN).steps[-1] == steps
