"""Lines of a trainer's log that tell of a step: JSON, or what Megatron-LM, NeMo, torchtitan,
DeepSpeed and verl print."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast

from twin.interop.recognise import LONGEST, formats, plain

TOLD: Final[Mapping[str, Mapping[str, str]]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
_STEPS: Final = tuple(one.step for one in formats().values() if one.step)
_SEQUENCES: Final = tuple(one.sequence for one in formats().values() if one.sequence)
Facts = Mapping[str, Any]
"""What a log tells of a step, or of something else."""


@dataclass(slots=True)
class LineReader:
    """Reads lines in order: some formats tell the time of a step by when its line was printed, and
    print averages over the steps since the last line."""

    steps: int | None = None
    """Of the whole run; None where no line says it."""
    printed: bool = False
    """Whether steps were found in lines that are no JSON: then any other line is allowed."""
    objects: bool = False
    """Whether a line was a JSON object: then all should be."""
    _odd: int = 0
    _sequence: int | None = None
    _before: tuple[int, datetime] | None = None

    @property
    def damaged(self) -> int:
        """Whole lines that are no JSON object, of a log that is JSON."""
        return 0 if self.printed else self._odd

    def cut(self, piece: bytes, place: int) -> tuple[list[Facts], int]:
        """What all whole lines of a piece say, and its bytes up to their end."""
        del place
        whole = piece.rfind(b"\n") + 1
        found: list[Facts] = []
        for line in piece[:whole].splitlines():
            if line.strip():
                facts = self.facts(line)
                self._odd += facts is None and (self.objects or line.lstrip()[:1] == b"{")
                found += [] if facts is None else [facts]
        return found, whole

    def facts(self, line: bytes) -> Mapping[str, Any] | None:
        """What a line says: of a step `step`, `seconds` and perhaps `tokens`. None where it is
        neither JSON nor a step."""
        if line.lstrip()[:1] == b"{":
            found = _json(line)
            self.objects |= found is not None
            return found
        text = plain(line[:LONGEST])
        for pattern in _SEQUENCES:
            if found := pattern.search(text):
                self._sequence = int(found["tokens"])
        for pattern in _STEPS:
            if found := pattern.search(text):
                self.printed = True
                return self._step(found.groupdict())
        return None

    def _step(self, found: Mapping[str, str | None]) -> Mapping[str, Any]:
        step = int(found["step"] or 0)
        if of := found.get("of"):
            self.steps = int(of)
        facts: dict[str, Any] = {"step": step, "seconds": self._seconds(step, found)}
        if (samples := found.get("samples")) and self._sequence:
            facts["tokens"] = int(samples) * self._sequence
        return facts

    def _seconds(self, step: int, found: Mapping[str, str | None]) -> float | None:
        """Of the step; None for the first of those that only say when they were printed."""
        if ms := found.get("ms"):
            return float(ms) / 1e3
        if s := found.get("s"):
            return float(s)
        at = datetime.fromisoformat(cast(str, found["at"]).replace(",", "."))
        before, self._before = self._before, (step, at)
        if before is None or step <= before[0]:
            return None
        return (at - before[1]).total_seconds() / (step - before[0])


def _json(line: bytes) -> Mapping[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast(Mapping[str, Any], found) if isinstance(found, dict) else None
