"""Steps in the files of TensorBoard (`events.out.tfevents.*`) and of Weights & Biases offline runs
(`run-*.wandb`), read while they are written.

Both are records of protocol buffers, one behind another. Of a record only numbers with a name and a
step are looked at. Sources: tensorflow/core/lib/io/record_writer.cc and util/event.proto;
LevelDB's log format, and wandb/proto/wandb_internal.proto. Checksums are not checked: what is torn
is not whole yet, and what is damaged has no such numbers.
"""

from __future__ import annotations

import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from twin.evidence.live.log_lines import TOLD, Facts
from twin.evidence.traces.wire_format import fields

NAMES: Final = tuple(TOLD["scalars"].values())
"""What trainers call the seconds of a step, the surest first."""
_HEADER: Final = 7
"""Bytes before a file's first block, and before each part of a record."""
_BLOCK: Final = 1 << 15
_LAST_OF_RECORD: Final = (1, 4)
"""A part that is a whole record, or its last one."""
_LONGEST: Final = 1 << 28
"""Bytes of a record beyond which a file is damaged."""


Scalars = tuple[int, float, Mapping[str, float]]
"""Step and time of a record, and its numbers by name."""


@dataclass(slots=True)
class EventReader(ABC):
    """Reads records in order. Where no record has the seconds of a step, they are those since the
    step before, as the writer's clock has it."""

    named: str = ""
    """What tells the seconds of a step, as far as is known."""
    _clock: tuple[int, float] | None = None
    _ticks: str = ""
    """What is written in each step, by which the clock is read."""

    def cut(self, piece: bytes, place: int) -> tuple[list[Facts], int]:
        """The steps of all whole records in a piece that begins at a place of its file, and the
        bytes that were read."""
        records, read = self.records(piece, place)
        return [one for record in records for one in self._steps(*self.scalars(record))], read

    @abstractmethod
    def records(self, piece: bytes, place: int) -> tuple[list[bytes], int]:
        """All whole records in a piece that begins at a place of its file, and the bytes that were
        read."""

    @abstractmethod
    def scalars(self, record: bytes) -> Scalars:
        """What a record says."""

    def _steps(self, step: int, time: float, scalars: Mapping[str, float]) -> Iterator[Facts]:
        known = next((name for name in NAMES if name in scalars), None)
        if known is not None and known in (self.named or known):
            self.named = known
            yield {"step": step, "seconds": scalars[known]}
        elif scalars and not self.named:
            self._ticks = self._ticks or next(iter(scalars))
            if self._ticks in scalars:
                before, self._clock = self._clock, (step, time)
                if before is not None and step > before[0] and time > before[1]:
                    yield {"step": step, "seconds": (time - before[1]) / (step - before[0])}


@final
class TensorBoardReader(EventReader):
    """Reads a file of TensorBoard."""

    def records(self, piece: bytes, place: int) -> tuple[list[bytes], int]:
        """Each behind its length and a checksum, with another one behind it."""
        del place
        found: list[bytes] = []
        at = 0
        while at + 12 <= len(piece):
            (length,) = struct.unpack_from("<Q", piece, at)
            if length > _LONGEST:
                return found, len(piece)
            if at + 16 + length > len(piece):
                break
            found.append(piece[at + 12 : at + 12 + length])
            at += 16 + length
        return found, at

    def scalars(self, record: bytes) -> Scalars:
        """Those of an `Event`."""
        event = dict(fields(record))
        time, step = event.get(1), event.get(2)
        found: dict[str, float] = {}
        for number, value in fields(_bytes(event.get(5))):
            if number == 1:
                found |= _scalar(_bytes(value))
        clock = _bytes(time)
        seconds = struct.unpack("<d", clock)[0] if len(clock) == 8 else 0.0
        return step if isinstance(step, int) else 0, seconds, found


def _scalar(value: bytes) -> dict[str, float]:
    """A `Summary.Value`: a simple value, or a tensor of one float."""
    known = dict(fields(value))
    name = _bytes(known.get(1)).decode("utf-8", "replace")
    simple = known.get(2)
    if simple is None and 8 in known:
        tensor = dict(fields(_bytes(known[8])))
        simple = tensor.get(5, tensor.get(4))
    if not name or not isinstance(simple, bytes) or len(simple) != 4:
        return {}
    return {name: struct.unpack("<f", simple)[0]}


@final
class WandbReader(EventReader):
    """Reads a file of Weights & Biases."""

    def records(self, piece: bytes, place: int) -> tuple[list[bytes], int]:
        """In parts that cross no block of the file."""
        found: list[bytes] = []
        at = read = _HEADER if not place else 0
        parts: list[bytes] = []
        while at + _HEADER <= len(piece):
            left = _BLOCK - (place + at) % _BLOCK
            if left < _HEADER:  # the rest of a block that no part fits into
                at += left
                continue
            _, length, kind = struct.unpack_from("<IHB", piece, at)
            end = at + _HEADER + length
            if not kind and not length:  # a block that was made and not filled
                at += left
                continue
            if end > len(piece):
                break
            parts.append(piece[at + _HEADER : end])
            at = end
            if kind in _LAST_OF_RECORD:
                found.append(b"".join(parts))
                parts, read = [], at
        return found, read

    def scalars(self, record: bytes) -> Scalars:
        """Those of a `Record` that holds a line of the history."""
        history = next((value for number, value in fields(record) if number == 2), b"")
        found: dict[str, float] = {}
        step: int | None = None
        for number, value in fields(_bytes(history)):
            known = list(fields(_bytes(value)))
            if number == 1:
                names = [_bytes(part) for place, part in known if place in (1, 2)]
                text = next((_bytes(part) for place, part in known if place == 16), b"")
                name = b".".join(part for part in names if part).decode("utf-8", "replace")
                found |= _number(name, text)
            elif number == 2:
                step = next((int(part) for place, part in known if place == 1 and part), 0)
        at, time = found.pop("_step", 0), found.pop("_timestamp", 0.0)
        found.pop("_runtime", None)
        return int(at) if step is None else step, time, found


def _number(name: str, text: bytes) -> dict[str, float]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    whole = isinstance(value, int | float) and not isinstance(value, bool)
    return {name: float(value)} if whole else {}


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else b""


READERS: Final = {"tensorboard": TensorBoardReader, "wandb": WandbReader}
"""By the name of the format."""
