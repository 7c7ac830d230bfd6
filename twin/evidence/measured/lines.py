"""The lines of a rank's timeline, `rank-00000.jsonl`: a header, then one per span and per step.

    {"kind": "header", "version": 1, "rank": 0, "ranks": 4, "stage": 0, "clock": "unix_ns",
     "parallel": {...}, "model": "kimi-k2-nano", "microbatches": 8, "created": "2026-11-20T..."}
    {"kind": "span", "step": 12, "stream": "compute", "name": "F", "chunk": 0, "microbatch": 3,
     "start": 1790000000000000000, "end": 1790000000001000000, "bytes": 0}
    {"kind": "step", "step": 12, "start": 1790000000000000000, "end": 1790000000009000000}

Times are nanoseconds of one clock for all ranks. A message carries the chunk that receives it. Two
things may be there and need not be: a span's `group`, the kind of group that a collective runs in
(`expert`, `data`, `expert_data`, `world`), and lines `{"kind": "arrival", "step", "name", "chunk",
"microbatch", "at"}` on the rank that a message reaches. Lines of other kinds are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import Field, Strict, TypeAdapter, ValidationError

from twin.errors import Origin, Problem, UsageError

VERSION: Final = 1
"""Of the format, as far as this reader knows it."""
CLOCK: Final = "unix_ns"
REWRITE: Final = "a trainer writes it whole: somebody changed the file, or a disk is damaged"
CLOCKS: Final = "the clock was set while the run went on: cut the line out, or run again"
_MARKED: Final = 60
"""Characters of a line that a caret line is long at most."""

T = TypeVar("T")
Fact = tuple[int, dict[str, Any]]
"""A line's number in its file, from 1, and its object."""
Whole = Annotated[int, Strict(), Field(ge=0, le=2**62)]
Place = Annotated[int, Strict(), Field(ge=-1, le=2**31 - 1)]
"""A chunk or a micro-batch; -1 of what belongs to none."""
Stream = Literal[
    "compute",
    "tensor",
    "expert",
    "send_forward",
    "send_backward",
    "data",
    "context",
    "gather",
    "to_host",
    "from_host",
]
"""Those of `twin.engine.program.STREAMS`."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a rank says of the run."""

    rank: Whole
    ranks: Annotated[int, Strict(), Field(ge=1, le=1_000_000)]
    stage: Whole
    clock: str
    parallel: dict[str, Any]
    """The section of the trainer's configuration."""
    model: str
    microbatches: Annotated[int, Strict(), Field(ge=1)]
    """Of a step and pipeline."""
    created: str = ""

    @property
    def layout(self) -> tuple[Any, ...]:
        """What all ranks of a run share."""
        return self.ranks, json.dumps(self.parallel, sort_keys=True), self.model, self.microbatches


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time."""

    step: Whole
    stream: Stream
    name: Annotated[str, Field(min_length=1, max_length=200)]
    chunk: Place
    microbatch: Place
    start: Whole
    end: Whole
    bytes: Whole = 0
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A step that the rank finished."""

    step: Whole
    start: Whole
    end: Whole


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that came."""

    step: Whole
    name: str
    chunk: Place
    microbatch: Place
    at: Whole


_HEADERS = TypeAdapter(list[Header])
_SPANS = TypeAdapter(list[Span])
_STEPS = TypeAdapter(list[Step])
_ARRIVALS = TypeAdapter(list[Arrival])


def header(path: Path, fact: Fact) -> Header:
    """The header that a line is. Raises `UsageError` where it is none that this reader knows."""
    origin = at(path, fact[0])
    version = fact[1].get("version")
    if version != VERSION:
        message = f"this timeline is of version {version!r}, and this reader knows {VERSION}"
        raise wrong("TW332", message, "read it with the twin that its trainer came with", origin)
    (found,) = _checked(_HEADERS, path, [fact])
    if found.clock != CLOCK:
        message = f"its clock is `{found.clock}`"
        raise wrong("TW332", message, f"times of all ranks must be of one `{CLOCK}`", origin)
    if found.rank >= found.ranks:
        message = f"it says that it is rank {found.rank} of {found.ranks}"
        raise wrong("TW332", message, "ranks count from 0", origin)
    return found


def spans(path: Path, facts: Sequence[Fact]) -> list[Span]:
    """The spans that lines are. Raises `UsageError` with all that are none."""
    found = _checked(_SPANS, path, facts)
    for (number, _), one in zip(facts, found, strict=True):
        if one.end < one.start:
            message = f"`{one.name}` ends before it begins"
            raise wrong("TW335", message, CLOCKS, at(path, number))
    return found


def steps(path: Path, facts: Sequence[Fact]) -> list[Step]:
    """The steps that lines are. Raises `UsageError` with all that are none."""
    found = _checked(_STEPS, path, facts)
    for (number, _), one in zip(facts, found, strict=True):
        if one.end <= one.start:
            message = f"step {one.step} ends before it begins"
            raise wrong("TW335", message, CLOCKS, at(path, number))
    return found


def arrivals(path: Path, facts: Sequence[Fact]) -> list[Arrival]:
    """The arrivals that lines are. Raises `UsageError` with all that are none."""
    return _checked(_ARRIVALS, path, facts)


def wrong(code: str, message: str, fix: str, origin: Origin) -> UsageError:
    """What is wrong with a line."""
    return UsageError([Problem(code, "", message, fix, origin)])


def at(path: Path, number: int) -> Origin:
    """A line of a file, with its text."""
    with path.open("rb") as file:
        line = next((one for place, one in enumerate(file, 1) if place == number), b"")
    text = line.decode("utf-8", "replace").strip()
    return Origin(str(path), number, 1, text, min(len(text), _MARKED))


def _checked(adapter: TypeAdapter[list[T]], path: Path, facts: Sequence[Fact]) -> list[T]:
    """The objects, once their types hold."""
    try:
        return adapter.validate_python([one for _, one in facts])
    except ValidationError as error:
        problems: list[Problem] = []
        for one in error.errors():
            place, *names = one["loc"]
            said = f"`{'.'.join(map(str, names))}`: {one['msg'][:1].lower()}{one['msg'][1:]}"
            origin = at(path, facts[int(place)][0])
            problems.append(Problem("TW331", "", said, REWRITE, origin))
        raise UsageError(problems) from None
