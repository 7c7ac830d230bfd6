"""A rank's timeline, `rank-00000.jsonl`: one JSON object per line, read block by block.

    {"kind": "header", "version": 1, "rank": 0, "ranks": 4, "stage": 0, "clock": "unix_ns",
     "parallel": {...}, "model": "kimi-k2-nano", "microbatches": 8, "created": "2026-11-20T..."}
    {"kind": "span", "step": 12, "stream": "compute", "name": "F", "chunk": 0, "microbatch": 3,
     "start": 1790000000000000000, "end": 1790000000001000000, "bytes": 0}
    {"kind": "step", "step": 12, "start": 1790000000000000000, "end": 1790000000009000000}

Times are nanoseconds of one clock for all ranks. A message carries the chunk that receives it.
Optional: a span's `group`, the kind of group that a collective runs in (`expert`, `data`,
`expert_data`, `world`), and lines `{"kind": "arrival", "step", "name", "chunk", "microbatch",
"at"}` on the rank that a message reaches. Lines of other kinds are skipped.

A resumed run writes another header and continues. Steps that it ran again replace the earlier
ones; a header with another layout replaces everything before it. A torn line is what a killed
process leaves. It is skipped at the end of a file and before a header.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict, TypeAdapter, ValidationError

from twin.engine.program import STREAMS
from twin.errors import Origin, Problem, UsageError
from twin.loading.files import opened

VERSION: Final = 1
"""Version of the format that this reader knows."""
CLOCK: Final = "unix_ns"
_REWRITE: Final = "a trainer writes whole lines: the file was edited, or the disk is damaged"
_CLOCKS: Final = "the clock was set during the run: remove the line, or run again"
_MARKED: Final = 60
"""Longest caret line under a quoted line."""
_HEADER: Final = b'{"kind": "header"'
_BLOCK: Final = 20_000
"""Lines read at once."""
_NEVER: Final = 1 << 62

T = TypeVar("T")
Ints = NDArray[np.int64]
NumberedLine = tuple[int, dict[str, Any]]
"""A line's number in its file, from 1, and its object."""
Arrived = tuple[int, str, int, int]
"""Step, name, chunk and micro-batch of a message that arrived."""
_Whole = Annotated[int, Strict(), Field(ge=0, le=2**62)]
_Positive = Annotated[int, Strict(), Field(ge=1, le=1_000_000)]
_Index = Annotated[int, Strict(), Field(ge=-1, le=2**31 - 1)]
"""A chunk or a micro-batch; -1 for none."""
_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Stream = Literal[
    "compute", "tensor", "expert", "send_forward", "send_backward", "data", "context", "gather",
    "to_host", "from_host",
]  # fmt: skip
"""Those of `twin.engine.program.STREAMS`."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a rank states about the run."""

    rank: _Whole
    ranks: _Positive
    stage: _Whole
    clock: str
    parallel: dict[str, Any]
    """The section of the trainer's configuration."""
    model: str
    microbatches: Annotated[int, Strict(), Field(ge=1)]
    """Per step and pipeline."""
    created: str = ""

    @property
    def layout(self) -> tuple[Any, ...]:
        """What all ranks of a run share."""
        return self.ranks, json.dumps(self.parallel, sort_keys=True), self.model, self.microbatches


@dataclass(frozen=True, slots=True)
class _Span:
    step: _Whole
    stream: _Stream
    name: _Name
    chunk: _Index
    microbatch: _Index
    start: _Whole
    end: _Whole
    bytes: _Whole = 0
    group: str | None = None


@dataclass(frozen=True, slots=True)
class _FinishedStep:
    step: _Whole
    start: _Whole
    end: _Whole


@dataclass(frozen=True, slots=True)
class _Arrival:
    step: _Whole
    name: str
    chunk: _Index
    microbatch: _Index
    at: _Whole


_HEADERS = TypeAdapter(list[Header])
_SPANS = TypeAdapter(list[_Span])
_STEPS = TypeAdapter(list[_FinishedStep])
_ARRIVALS = TypeAdapter(list[_Arrival])


@dataclass(frozen=True, slots=True)
class RankSpans:
    """Spans of one rank, one column per quantity."""

    step: Ints
    stream: Ints
    """Index into `twin.engine.program.STREAMS`."""
    name: Ints
    """Index into the rank's words."""
    chunk: Ints
    """Of a message the chunk that receives it; -1 for none."""
    microbatch: Ints
    """-1 for none."""
    start: Ints
    end: Ints
    bytes: Ints
    """Payload of a transfer."""
    group: Ints
    """Kind of a collective's group, index into the rank's words; the first word is empty."""

    def __len__(self) -> int:
        return len(self.step)

    def rows(self, chosen: NDArray[Any] | slice) -> RankSpans:
        """Some of the spans."""
        return RankSpans(*(getattr(self, column.name)[chosen] for column in fields(self)))

    def within(self, start: int, end: int, since: int) -> RankSpans:
        """The spans that overlap an interval, clipped to it, with times counted from `since`."""
        own = self.rows((self.end > start) & (self.start < end))
        begins, ends = (np.clip(times, start, end) - since for times in (own.start, own.end))
        return replace(own, start=begins, end=ends)


@dataclass(frozen=True, slots=True)
class Rank:
    """The records of one rank."""

    header: Header
    words: tuple[str, ...]
    spans: RankSpans
    """By step, then by start."""
    steps: Mapping[int, tuple[int, int]]
    """Start and end of every step that it finished."""
    arrivals: Mapping[Arrived, int]

    def of(self, step: int) -> RankSpans:
        """The spans of one step."""
        first, end = np.searchsorted(self.spans.step, [step, step + 1]).tolist()
        return self.spans.rows(slice(first, end))


@dataclass(slots=True)
class _Part:
    """The records between one header and the next; tables have the columns of `RankSpans`."""

    header: Header
    tables: list[Ints] = field(default_factory=list[Ints])
    steps: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    arrivals: dict[Arrived, int] = field(default_factory=dict[Arrived, int])

    @property
    def first(self) -> int:
        """The earliest step in it."""
        begun = [int(table[0].min()) for table in self.tables if table.size]
        return min([*begun, *self.steps], default=_NEVER)

    def forget(self, step: int) -> None:
        """Drop a step and all later ones, which a later part ran again."""
        self.tables = [table[:, table[0] < step] for table in self.tables]
        self.steps = {number: times for number, times in self.steps.items() if number < step}
        self.arrivals = {key: came for key, came in self.arrivals.items() if key[0] < step}


def read_rank(path: Path) -> Rank:
    """The records in a file. Raises `UsageError` with file and line where they are invalid."""
    reader = _Reader(path)
    number = 1
    with opened(path) as file:
        while block := list(islice(file, _BLOCK)):
            reader.take(number, block)
            number += len(block)
    return reader.rank()


class _Reader:
    """Reads one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._words: dict[str, int] = {"": 0}
        self._parts: list[_Part] = []

    def take(self, number: int, block: Sequence[bytes]) -> None:
        """Read lines, the first of which has this number in the file."""
        lines = self._objects(number, block)
        heads = [place for place, (_, line) in enumerate(lines) if line.get("kind") == "header"]
        if lines and not self._parts and heads[:1] != [0]:
            raise self._wrong("TW332", "the timeline does not begin with a header", lines[0][0])
        for first, end in zip([0, *heads], [*heads, len(lines)], strict=True):
            own = lines[first:end]
            if own and first in heads:
                self._parts.append(_Part(self._header(own[0])))
                own = own[1:]
            if own:
                self._add(self._parts[-1], own)

    def rank(self) -> Rank:
        """All that was read."""
        if not self._parts:
            fix = "its rank ended before it wrote: wait, or run again"
            raise self._wrong("TW332", "the timeline has no header", 1, fix)
        last = self._parts[-1]
        parts = [part for part in self._parts if part.header.layout == last.header.layout]
        later = last.first
        for part in reversed(parts[:-1]):
            part.forget(later)
            later = min(later, part.first)
        tables = [table for part in parts for table in part.tables]
        table = np.concatenate([np.zeros((9, 0), np.int64), *tables], axis=1)
        return Rank(
            header=last.header,
            words=tuple(self._words),
            spans=RankSpans(*table[:, np.lexsort((table[5], table[0]))]),
            steps={step: times for part in parts for step, times in part.steps.items()},
            arrivals={key: came for part in parts for key, came in part.arrivals.items()},
        )

    def _objects(self, number: int, block: Sequence[bytes]) -> list[NumberedLine]:
        """The objects of lines with their numbers, without torn lines."""
        try:  # All at once is several times as fast.
            whole: list[Any] = json.loads(b"[" + b",".join(block) + b"]")
        except ValueError:
            whole = []
        if len(whole) == len(block) and all(type(line) is dict for line in whole):
            return list(enumerate(cast(list[dict[str, Any]], whole), number))
        read = ((place, self._object(place, line)) for place, line in enumerate(block, number))
        return [(place, line) for place, line in read if line is not None]

    def _object(self, number: int, line: bytes) -> dict[str, Any] | None:
        """The object of one line; None where the line is empty or torn."""
        if not line.strip():
            return None
        try:
            found: Any = json.loads(line[max(line.find(_HEADER, 1), 0) :])
        except ValueError:
            if not line.endswith(b"\n"):
                return None
            raise self._wrong("TW331", "this line is not JSON, and not the last", number) from None
        if type(found) is not dict:
            raise self._wrong("TW331", "a line of a timeline must be an object", number)
        return cast(dict[str, Any], found)

    def _header(self, line: NumberedLine) -> Header:
        """Raises `UsageError` where this reader does not know the header."""
        version = line[1].get("version")
        if version != VERSION:
            message = f"this timeline has version {version!r}; this reader knows {VERSION}"
            raise self._wrong("TW332", message, line[0], "use the twin that its trainer came with")
        (found,) = self._checked(_HEADERS, [line])
        if found.clock != CLOCK:
            fix = f"times of all ranks must be of one `{CLOCK}`"
            raise self._wrong("TW332", f"its clock is `{found.clock}`", line[0], fix)
        if found.rank >= found.ranks:
            message = f"it states that it is rank {found.rank} of {found.ranks}"
            raise self._wrong("TW332", message, line[0], "ranks count from 0")
        return found

    def _add(self, part: _Part, lines: Sequence[NumberedLine]) -> None:
        """Sort the lines behind a header into its part."""
        by_kind: dict[str, list[NumberedLine]] = {"span": [], "step": [], "arrival": []}
        for line in lines:
            by_kind.setdefault(str(line[1].get("kind")), []).append(line)
        table = list(self._rows(by_kind["span"]))
        if table:
            part.tables.append(np.array(table, np.int64).T)
        steps = self._checked(_STEPS, by_kind["step"])
        for (number, _), step in zip(by_kind["step"], steps, strict=True):
            if step.end <= step.start:
                message = f"step {step.step} ends before it begins"
                raise self._wrong("TW335", message, number, _CLOCKS)
            part.steps[step.step] = (step.start, step.end)
        for came in self._checked(_ARRIVALS, by_kind["arrival"]):
            part.arrivals[came.step, came.name, came.chunk, came.microbatch] = came.at

    def _rows(self, lines: Sequence[NumberedLine]) -> Iterator[tuple[int, ...]]:
        """Spans in the columns of `RankSpans`."""
        for (number, _), span in zip(lines, self._checked(_SPANS, lines), strict=True):
            if span.end < span.start:
                message = f"`{span.name}` ends before it begins"
                raise self._wrong("TW335", message, number, _CLOCKS)
            place = span.chunk, span.microbatch, span.start, span.end, span.bytes
            stream, name = STREAMS.index(span.stream), self._word(span.name)
            yield span.step, stream, name, *place, self._word(span.group or "")

    def _word(self, text: str) -> int:
        return self._words.setdefault(text, len(self._words))

    def _checked(self, adapter: TypeAdapter[list[T]], lines: Sequence[NumberedLine]) -> list[T]:
        """The objects of lines. Raises `UsageError` with all lines of wrong types."""
        try:
            return adapter.validate_python([line for _, line in lines])
        except ValidationError as error:
            problems: list[Problem] = []
            for entry in error.errors():
                place, *names = entry["loc"]
                reason = f"{entry['msg'][:1].lower()}{entry['msg'][1:]}"
                message = f"`{'.'.join(map(str, names))}`: {reason}"
                origin = self._at(lines[int(place)][0])
                problems.append(Problem("TW331", "", message, _REWRITE, origin))
            raise UsageError(problems) from None

    def _wrong(self, code: str, message: str, number: int, fix: str = _REWRITE) -> UsageError:
        return UsageError([Problem(code, "", message, fix, self._at(number))])

    def _at(self, number: int) -> Origin:
        """A line of the file, with its text."""
        with opened(self._path) as file:
            line = next(islice(file, number - 1, None), b"")
        text = line.decode("utf-8", "replace").strip()
        return Origin(str(self._path), number, 1, text, min(len(text), _MARKED))
