"""What a run is going to do, and since when it runs: from the files beside its log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from twin.evidence.live.log import NAME, Step
from twin.evidence.live.timeline import first_start

CONFIG: Final = "run.json"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a run whose steps are alike."""

    name: str
    steps: int
    tokens: int | None
    """Per step."""


@dataclass(frozen=True, slots=True)
class Course:
    """The stretches of a run in order; none where nothing says what it is going to do."""

    stretches: tuple[Stretch, ...] = ()

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


def course(folder: Path, steps: int | None = None) -> Course:
    """From a run's configuration as `reference.train` writes it (`run.json`), else from a number of
    steps that somebody knows; without either nothing."""
    if steps is not None:
        return Course((Stretch("", steps, None),))
    try:
        found = _Run.model_validate(_json(folder / CONFIG))
    except (OSError, ValueError, RecursionError, ValidationError):
        return Course()
    rows = [found.train, *found.stages]
    return Course(
        tuple(Stretch(o.name, o.steps, o.sequence * o.micro_batch * o.accumulate) for o in rows)
    )


def began(folder: Path, steps: Sequence[Step]) -> datetime | None:
    """The latest moment at which the run can have begun, from the earliest of what is known: the
    first span of its timeline, when its configuration was written, and when its log was last
    written less the seconds of all its steps. A folder that was copied without its times, and has
    no timeline, looks younger than it is. None where nothing is known."""
    found: list[float] = []
    if (start := first_start(folder)) is not None:
        found.append(start / 1e9)
    found += _written(folder / CONFIG)
    if steps:
        found += [at - sum(one.seconds for one in steps) for at in _written(folder / NAME)]
    return datetime.fromtimestamp(max(0.0, min(found)), UTC) if found else None


def tokens_per_step(steps: Sequence[Step]) -> int | None:
    """Of the newest step; None where the log does not say."""
    if len(steps) < 2:
        return steps[0].tokens if steps and steps[0].step == 1 else None
    newest, before = steps[-1], steps[-2]
    if newest.tokens is None or before.tokens is None or newest.step <= before.step:
        return None
    return (newest.tokens - before.tokens) // (newest.step - before.step)


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def _written(path: Path) -> list[float]:
    try:
        return [path.stat().st_mtime]
    except OSError:
        return []
