"""What one rank wrote down, read block by block.

A run that is resumed writes another header and goes on: what an earlier part wrote of steps that
the later one ran again is dropped, as the trainer dropped it, and all of it where the layout is
another one. A line that ends in the middle is what a killed process leaves: the last one of a file,
or one that a header stands behind, is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import numpy as np
from numpy.typing import NDArray

from twin.engine.program import STREAMS
from twin.evidence.measured import lines
from twin.evidence.measured.lines import REWRITE, Fact, Header, at, wrong

_HEADER: Final = b'{"kind": "header"'
_BLOCK: Final = 20_000
"""Lines that are read at once."""
_NEVER: Final = 1 << 62
Arrived = tuple[int, str, int, int]
"""Step, name, chunk and micro-batch of a message that came."""


@dataclass(frozen=True, slots=True)
class Written:
    """Spans as they were written: a row per quantity."""

    table: NDArray[np.int64]

    @property
    def step(self) -> NDArray[np.int64]:
        """The step that it belongs to."""
        return self.table[0]

    @property
    def stream(self) -> NDArray[np.int64]:
        """Index into `twin.engine.program.STREAMS`."""
        return self.table[1]

    @property
    def name(self) -> NDArray[np.int64]:
        """Index into the rank's words."""
        return self.table[2]

    @property
    def chunk(self) -> NDArray[np.int64]:
        """The chunk; of a message the one that receives it; -1 of none."""
        return self.table[3]

    @property
    def microbatch(self) -> NDArray[np.int64]:
        """The micro-batch; -1 of none."""
        return self.table[4]

    @property
    def start(self) -> NDArray[np.int64]:
        """When it began (ns)."""
        return self.table[5]

    @property
    def end(self) -> NDArray[np.int64]:
        """When it ended (ns)."""
        return self.table[6]

    @property
    def bytes(self) -> NDArray[np.int64]:
        """The payload of a transfer."""
        return self.table[7]

    @property
    def group(self) -> NDArray[np.int64]:
        """The kind of a collective's group; index into the rank's words, the first of which says
        nothing."""
        return self.table[8]

    def __len__(self) -> int:
        return self.table.shape[1]

    def within(self, start: int, end: int, since: int) -> Written:
        """Those that are under way between two times, clipped to them, with times `since` then."""
        table = self.table[:, (self.end > start) & (self.start < end)]
        table[5:7] = np.clip(table[5:7], start, end) - since
        return Written(table)


@dataclass(frozen=True, slots=True)
class Rank:
    """What one rank wrote down."""

    header: Header
    words: tuple[str, ...]
    spans: Written
    """By step, then by start."""
    steps: Mapping[int, tuple[int, int]]
    """Start and end of every step that it finished."""
    arrivals: Mapping[Arrived, int]

    def of(self, step: int) -> Written:
        """The spans of one step."""
        first, end = np.searchsorted(self.spans.step, [step, step + 1]).tolist()
        return Written(self.spans.table[:, first:end])


@dataclass(slots=True)
class _Part:
    """What was written between one header and the next."""

    header: Header
    tables: list[NDArray[np.int64]] = field(default_factory=list[NDArray[np.int64]])
    steps: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    arrivals: dict[Arrived, int] = field(default_factory=dict[Arrived, int])

    @property
    def first(self) -> int:
        """The earliest step that was written here."""
        begun = [int(table[0].min()) for table in self.tables if table.size]
        return min([*begun, *self.steps], default=_NEVER)

    def forget(self, step: int) -> None:
        """Drop what a later part ran again: this step and all behind it."""
        self.tables = [table[:, table[0] < step] for table in self.tables]
        self.steps = {one: times for one, times in self.steps.items() if one < step}
        self.arrivals = {key: came for key, came in self.arrivals.items() if key[0] < step}


def read_rank(path: Path) -> Rank:
    """What a file says. Raises `UsageError` with file and line where it says nothing sound."""
    reader = _Reader(path)
    with path.open("rb") as file:
        for number, block in _blocks(file):
            reader.take(number, block)
    return reader.rank()


def _blocks(file: BinaryIO) -> Iterator[tuple[int, list[bytes]]]:
    """The lines of a file in blocks, each with the number of its first line."""
    number, block = 1, list[bytes]()
    for line in file:
        block.append(line)
        if len(block) == _BLOCK:
            yield number, block
            number, block = number + len(block), []
    if block:
        yield number, block


class _Reader:
    """Reads one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._words: dict[str, int] = {"": 0}
        self._parts: list[_Part] = []

    def take(self, number: int, block: Sequence[bytes]) -> None:
        """Read lines, the first of which has this number in the file."""
        facts = self._objects(number, block)
        heads = [place for place, (_, one) in enumerate(facts) if one.get("kind") == "header"]
        if facts and not self._parts and heads[:1] != [0]:
            message = "a timeline begins with a header, and this one does not"
            raise wrong("TW332", message, REWRITE, at(self._path, facts[0][0]))
        for first, end in zip([0, *heads], [*heads, len(facts)], strict=True):
            own = facts[first:end]
            if own and first in heads:
                self._parts.append(_Part(lines.header(self._path, own[0])))
                own = own[1:]
            if own:
                self._add(self._parts[-1], own)

    def rank(self) -> Rank:
        """All that was read."""
        if not self._parts:
            message = "this timeline has not even a header"
            fix = "its rank was ended before it wrote: wait, or run again"
            raise wrong("TW332", message, fix, at(self._path, 1))
        last = self._parts[-1]
        parts = [one for one in self._parts if one.header.layout == last.header.layout]
        later = last.first
        for part in reversed(parts[:-1]):
            part.forget(later)
            later = min(later, part.first)
        tables = [table for part in parts for table in part.tables]
        table = np.concatenate([np.zeros((9, 0), np.int64), *tables], axis=1)
        return Rank(
            header=last.header,
            words=tuple(self._words),
            spans=Written(table[:, np.lexsort((table[5], table[0]))]),
            steps={step: times for part in parts for step, times in part.steps.items()},
            arrivals={key: came for part in parts for key, came in part.arrivals.items()},
        )

    def _objects(self, number: int, block: Sequence[bytes]) -> list[Fact]:
        """The objects of lines with their numbers; torn ones left out."""
        try:  # All at once is several times as fast.
            whole: list[Any] = json.loads(b"[" + b",".join(block) + b"]")
        except ValueError:
            whole = []
        if len(whole) == len(block) and all(type(one) is dict for one in whole):
            return list(enumerate(cast(list[dict[str, Any]], whole), number))
        read = ((place, self._object(place, line)) for place, line in enumerate(block, number))
        return [(place, one) for place, one in read if one is not None]

    def _object(self, number: int, line: bytes) -> dict[str, Any] | None:
        """The object of one line; None where the line is empty or torn."""
        if not line.strip():
            return None
        try:
            one: Any = json.loads(line[max(line.find(_HEADER, 1), 0) :])
        except ValueError:
            if not line.endswith(b"\n"):
                return None
            message = "this line is no JSON, and it is not the last one"
            raise wrong("TW331", message, REWRITE, at(self._path, number)) from None
        if type(one) is not dict:
            message = "a line of a timeline is an object"
            raise wrong("TW331", message, REWRITE, at(self._path, number))
        return cast(dict[str, Any], one)

    def _add(self, part: _Part, facts: Sequence[Fact]) -> None:
        """Put the lines behind a header where they belong."""
        by_kind: dict[str, list[Fact]] = {"span": [], "step": [], "arrival": []}
        for fact in facts:
            by_kind.setdefault(str(fact[1].get("kind")), []).append(fact)
        table = [
            (
                *(one.step, STREAMS.index(one.stream), self._word(one.name)),
                *(one.chunk, one.microbatch, one.start, one.end),
                *(one.bytes, self._word(one.group or "")),
            )
            for one in lines.spans(self._path, by_kind["span"])
        ]
        if table:
            part.tables.append(np.array(table, np.int64).T)
        for one in lines.steps(self._path, by_kind["step"]):
            part.steps[one.step] = (one.start, one.end)
        for one in lines.arrivals(self._path, by_kind["arrival"]):
            part.arrivals[one.step, one.name, one.chunk, one.microbatch] = one.at

    def _word(self, text: str) -> int:
        return self._words.setdefault(text, len(self._words))
