"""A trainer's log, read while it is written, and what the run's folder states about its end.

The log has one JSON line per step and per event, or what another trainer prints
(`log_lines`), or is TensorBoard's or Weights & Biases' (`event_files`). A line is a step if it has
a whole `step`, positive `seconds`, and no `kind` or the kind `step`; other lines with a `step` are
events. The log may appear later, end in a torn line, be cut back and continued (a resumed run), be
replaced, or be rotated. One rule covers all of that: a repeated step replaces itself and everything
after it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from twin.evidence.live.event_files import READERS, EventReader
from twin.evidence.live.log_lines import Facts, LineReader
from twin.evidence.live.timeline_window import first_start
from twin.interop.recognise import recognised
from twin.loading.files import read_bytes, unpacked

NAME: Final = "metrics.jsonl"
_CHUNK: Final = 1 << 22
"""Bytes that are read at once."""
_HEAD: Final = 64
"""Bytes by which a file of events is told."""
_LONGEST: Final = 1 << 28
"""Bytes of a record; a file with a longer one is read no further."""
_EVENT_FILES: Final = ("events.out.tfevents.*", "run-*.wandb")
"""As those who write them call them, in a folder or in one folder below."""
_KNOWN: Final = 256
"""Bytes before the place that was reached, which must still be what they were."""


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """One optimizer step of a log."""

    step: int
    seconds: float
    tokens: int | None = None
    """Trained on so far; None where the log does not say."""
    stage: str = ""
    """A part of the run whose steps are alike; empty where the log does not say."""
    fresh: int = 0
    """Steps before this one since the process began or the stage changed."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something else that a log tells: an evaluation, a checkpoint, that the run resumed."""

    kind: str
    step: int


@dataclass(slots=True)
class Log:
    """What a log has said so far. `look` reads on; everything else is what is known."""

    path: Path
    """A file; or a folder of TensorBoard's or Weights & Biases' files, which are read in turn."""
    steps: list[LoggedStep] = field(default_factory=list[LoggedStep])
    events: list[Event] = field(default_factory=list[Event])
    cut: int = 0
    """How often the log went back to an earlier step."""
    lines: LineReader = field(default_factory=LineReader)
    _reader: LineReader | EventReader | None = None
    _file: Path | None = None
    _offset: int = 0
    _before: bytes = b""
    _inode: int | None = None
    _packed: tuple[int, int] | None = None
    _new: bool = True
    """The next line is the first of a file that has not been read before."""
    _age: int = 0

    def look(self) -> bool:
        """Read what is new; True where anything was. What is no file says nothing."""
        files = self.files()
        begin = files.index(self._file) if self._file in files else 0
        found = False
        for path in files[begin:]:
            follows, self._file = self._file not in (None, path), path
            try:
                with unpacked(path) as file:
                    if self._find_place(file):
                        self._new &= not follows
                        found |= self._read_on(file)
            except OSError:
                continue
        return found

    def files(self) -> list[Path]:
        """That are read, the oldest first."""
        return event_files(self.path) if self.path.is_dir() else [self.path]

    @property
    def written(self) -> float | None:
        """When anything was last written, as Unix time; None before."""
        return max((time for file in self.files() for time in _written(file)), default=None)

    @property
    def last(self) -> int:
        """The last step that is done; 0 before the first."""
        return self.steps[-1].step if self.steps else 0

    def _find_place(self, file: Any) -> bool:
        """Where to read on: behind what is known, or at the start of a file that is another, is
        shorter than it was, or holds something else where it was read before. A packed file is
        read whole; False where it is as it was."""
        status = os.fstat(file.fileno())
        if not file.seekable():
            before, self._packed = self._packed, (status.st_ino, status.st_mtime_ns)
            self._offset, self._before, self._new = 0, b"", True
            return before != self._packed
        file.seek(max(0, self._offset - len(self._before)))
        same = status.st_ino == self._inode and status.st_size >= self._offset
        if not same or file.read(len(self._before)) != self._before:
            self._offset, self._before, self._new = 0, b"", True
        self._inode = status.st_ino
        file.seek(self._offset)
        return True

    def _read_on(self, file: Any) -> bool:
        found, text = False, b""
        # Of a record that goes on, twice as much is read each time.
        while len(text) < _LONGEST and (piece := file.read(max(_CHUNK, len(text)))):
            text += piece
            if self._reader is None or not self._offset:
                self._reader = self._reader_of(text)
            steps, whole = self._reader.cut(text, self._offset)
            for facts in steps:
                self._take(facts)
            self._offset += whole
            self._before = (self._before + text[:whole])[-_KNOWN:]
            text = text[whole:]
            found |= whole > 0
        return found

    def _reader_of(self, text: bytes) -> LineReader | EventReader:
        """What reads a file that begins so."""
        names = (READERS.get(one.name) for one in recognised(text[:_HEAD]))
        reader = next((one for one in names if one), None)
        return self.lines if reader is None else reader()

    def _take(self, facts: Facts) -> None:
        if self._is_echo(facts):
            return
        step, kind = facts.get("step"), facts.get("kind", "step")
        if not isinstance(step, int) or isinstance(step, bool) or not isinstance(kind, str):
            return
        if self._new:
            self._begin(step, kind)
        if kind != "step":
            self._event(Event(kind, step))
        elif (seconds := facts.get("seconds")) and _is_time(seconds):
            self._step(facts, float(seconds))

    def _is_echo(self, facts: Mapping[str, Any]) -> bool:
        """Whether another rank has printed the same step."""
        return self.lines.printed and not self._new and facts.get("step") == self.last

    def _begin(self, step: int, kind: str) -> None:
        """The first line of a file: one that tells of what is known already tells it all again; one
        that goes on is the rest of a log that was rotated."""
        self._new = False
        if step < self.last or (step == self.last and kind == "step"):
            self.cut += 1
            self.steps.clear()
            self.events.clear()

    def _event(self, event: Event) -> None:
        if event.step < self.last:
            self._forget(event.step + 1)
        self.events.append(event)
        if event.kind in ("resume", "stage"):
            self._age = 0

    def _step(self, facts: Mapping[str, Any], seconds: float) -> None:
        step = int(facts["step"])
        if step <= self.last:
            self._forget(step)
            self._age = 0
        tokens, stage = facts.get("tokens"), facts.get("stage")
        name = stage if isinstance(stage, str) else ""
        if self.steps and self.steps[-1].stage != name:
            self._age = 0
        known = tokens if isinstance(tokens, int) and tokens > 0 else None
        self.steps.append(LoggedStep(step, seconds, known, name, self._age))
        self._age += 1

    def _forget(self, step: int) -> None:
        """Everything from this step on: it happens again."""
        self.cut += 1
        while self.steps and self.steps[-1].step >= step:
            self.steps.pop()
        self.events[:] = [one for one in self.events if one.step < step]


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and _positive(value)


def _positive(value: float) -> bool:
    return isfinite(value) and value > 0


CONFIG: Final = "run.json"


@dataclass(frozen=True, slots=True)
class RunStage:
    """A part of a run whose steps are alike."""

    name: str
    steps: int
    tokens: int | None
    """Per step."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The stretches of a run in order; none where nothing says what it is going to do."""

    stretches: tuple[RunStage, ...] = ()

    @property
    def steps(self) -> int | None:
        """Of the whole run; None where that is unknown."""
        return sum(one.steps for one in self.stretches) if self.stretches else None

    def left(self, step: int, tokens: int | None) -> tuple[int, float] | None:
        """Steps after this one, and how many steps of so many tokens they amount to: other
        stretches' steps count by their tokens. None where the end is unknown."""
        if self.steps is None:
            return None
        end, work = 0, 0.0
        for one in self.stretches:
            begin, end = end, end + one.steps
            weight = one.tokens / tokens if one.tokens and tokens else 1.0
            work += weight * max(0, end - max(begin, step))
        return max(0, end - step), work


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _Batch(_Lenient):
    steps: int = Field(gt=0)
    sequence: int = Field(gt=0)
    micro_batch: int = Field(gt=0)
    accumulate: int = Field(default=1, gt=0)
    name: str = "train"


class _Run(_Lenient):
    train: _Batch
    stages: list[_Batch] = Field(default_factory=list[_Batch])


def run_plan(folder: Path, steps: int | None = None) -> RunPlan:
    """From a run's configuration as `reference.train` writes it (`run.json`), else from a number of
    steps that somebody knows; without either nothing."""
    if steps is not None:
        return RunPlan((RunStage("", steps, None),))
    try:
        found = _Run.model_validate(_json(folder / CONFIG))
    except (OSError, ValueError, RecursionError, ValidationError):
        return RunPlan()
    rows = [found.train, *found.stages]
    return RunPlan(
        tuple(RunStage(o.name, o.steps, o.sequence * o.micro_batch * o.accumulate) for o in rows)
    )


def event_files(folder: Path) -> list[Path]:
    """TensorBoard's or Weights & Biases' files of a run, the oldest first; those of one kind."""
    for pattern in _EVENT_FILES:
        found = [*folder.glob(pattern), *folder.glob(f"*/{pattern}")]
        if found:
            return sorted(found, key=lambda one: (_written(one), one.name))
    return []


def began(folder: Path, log: Log) -> datetime | None:
    """The latest moment at which the run can have begun, from the earliest of what is known: the
    first span of its timeline, when its configuration was written, and when its log was last
    written less the seconds of all its steps. A folder that was copied without its times, and has
    no timeline, looks younger than it is. None where nothing is known."""
    found: list[float] = []
    if (start := first_start(folder)) is not None:
        found.append(start / 1e9)
    found += _written(folder / CONFIG)
    if log.steps and log.written is not None:
        found.append(log.written - sum(one.seconds for one in log.steps))
    return datetime.fromtimestamp(max(0.0, min(found)), UTC) if found else None


def tokens_per_step(steps: Sequence[LoggedStep]) -> int | None:
    """Of the newest step; None where the log does not say."""
    if len(steps) < 2:
        return steps[0].tokens if steps and steps[0].step == 1 else None
    newest, before = steps[-1], steps[-2]
    if newest.tokens is None or before.tokens is None or newest.step <= before.step:
        return None
    return (newest.tokens - before.tokens) // (newest.step - before.step)


def _json(path: Path) -> Any:
    return json.loads(read_bytes(path))


def _written(path: Path) -> list[float]:
    try:
        return [path.stat().st_mtime]
    except OSError:
        return []
