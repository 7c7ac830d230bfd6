"""How long each stretch of computing takes at least: a device of another speed, stood in for by
sleep. The file is the simulator's to write; without one nothing waits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from twin.errors import Problem, UsageError
from twin.schedules import Pass

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of the stretches of each pass between its transfers, in order; the last stands for
    all further ones."""

    passes: Mapping[tuple[int, Pass], tuple[float, ...]] = field(default_factory=dict)
    optimizer: tuple[float, ...] = ()
    """Seconds of the update's computing, by stage; empty where nothing waits."""

    def of(self, chunk: int, kind: Pass) -> tuple[float, ...]:
        """Those of one pass of a chunk; empty where nothing waits."""
        return self.passes.get((chunk, kind), ())

    def update(self, stage: int) -> float:
        """That of one stage's update; nothing where the pace knows no such stage."""
        return self.optimizer[stage] if stage < len(self.optimizer) else 0.0


def load_pace(path: Path | None) -> Pace:
    """The pace in a file, or none. Raises UsageError where the file is none."""
    if path is None:
        return Pace()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        _refuse_other(found["version"])
        passes = {
            (int(chunk), kind): tuple(map(float, seconds))
            for chunk, kinds in found["chunks"].items()
            for kind, seconds in kinds.items()
        }
        return Pace(passes, tuple(map(float, found["optimizer"])))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        message = f"`{path}` is no pace: {error}"
        fix = "write one with `twin export SCENARIO --format pace`"
        raise UsageError([Problem("TW294", "train.pace", message, fix)]) from None


def _refuse_other(version: object) -> None:
    if version != VERSION:
        raise ValueError(f"version {version}, not {VERSION}")
