"""Events of a trace in Chrome's format (JSON, also .gz), in bounded memory.

A profiler's trace of one rank takes up to gigabytes. It is read in blocks: numpy finds where events
end, and msgspec decodes only the fields that anybody asks for. Source of the format: Trace Event
Format (Google, 2016), as pytorch/kineto writes it (libkineto/src/output_json.cpp).

Times are microseconds in the file, and integer nanoseconds here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import GenericAlias
from typing import Any, Final, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from twin.errors import Problem, UsageError
from twin.loading.files import display, unpacked

BLOCK: Final = 1 << 23
"""Bytes that are decoded at once."""
LONGEST: Final = 1 << 26
"""Bytes of the longest event; what is longer is no trace."""
_START: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_FIX: Final = "torch.profiler writes one with `export_chrome_trace`"


class Arguments(msgspec.Struct, gc=False):
    """What a profiler says about an event."""

    device: int | None = None
    stream: int | None = None
    correlation: int | None = None
    collective: str = msgspec.field(default="", name="Collective name")
    members: int = msgspec.field(default=0, name="Group size")
    group: str = msgspec.field(default="", name="Process Group Name")
    purpose: str = msgspec.field(default="", name="Process Group Description")
    ranks: str = msgspec.field(default="", name="Process Group Ranks")


class Event(msgspec.Struct, gc=False):
    """One event; only complete ones (`ph` X) have a duration."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0
    dur: float = -1
    args: Arguments = msgspec.field(default_factory=Arguments)

    @property
    def times(self) -> tuple[int, int]:
        """Start and end, nanoseconds."""
        start = round(1e3 * self.ts)
        return start, start + round(1e3 * self.dur)


class Shapes(msgspec.Struct, gc=False):
    """What a profiler says about a call, and about the kernels that it launched."""

    call: int | None = msgspec.field(default=None, name="External id")
    dims: list[Any] = msgspec.field(default_factory=list[Any], name="Input Dims")
    types: list[str] = msgspec.field(default_factory=list[str], name="Input type")
    values: list[Any] = msgspec.field(default_factory=list[Any], name="Concrete Inputs")


class ShapedEvent(Event, gc=False):
    """One event, with the shapes of its inputs in the place of all else."""

    args: Shapes = msgspec.field(default_factory=Shapes)  # pyright: ignore[reportIncompatibleVariableOverride]


E = TypeVar("E", bound=Event)


@dataclass
class Chrome:
    """A trace's file. `head` and `torn` are known once its events have been read."""

    path: Path
    head: dict[str, Any] = field(default_factory=dict[str, Any])
    """What it says beside its events."""
    skipped: int = 0
    """Events that have another form."""
    torn: bool = False
    """Whether the file ends before its list of events does."""

    def events(self, form: type[E]) -> Iterator[E]:
        """Complete events in this form, as they come. Raises `UsageError` where the file is no
        trace."""
        many = cast(type[list[E]], GenericAlias(list, (form,)))
        decoder = msgspec.json.Decoder(many)
        for block in self._blocks():
            for event in self._decoded(block, decoder, form):
                if event.ph == "X" and event.dur >= 0:
                    yield event

    def _blocks(self) -> Iterator[bytes]:
        """Whole events, many at once, with commas between them."""
        text, began = b"", False
        for part in self._parts():
            text += part
            if not began:
                found = _START.search(text)
                bare = text.lstrip()[:1] == b"["
                if found is None and not bare:
                    self._refuse_long(text)
                    continue
                begin = found.end() if found else text.index(b"[") + 1
                self.head = _head(text[: found.start()]) if found else {}
                text, began = text[begin:], True
            cut, ended = _cut(text)
            if cut:
                yield text[:cut]
            text = text[cut:]
            if ended:
                return
            self._refuse_long(text)
        if not began:
            raise self._wrong("it has no `traceEvents`")
        self.torn = True

    def _parts(self) -> Iterator[bytes]:
        try:
            with unpacked(self.path) as file:
                yield from iter(partial(file.read, BLOCK), b"")
        except OSError as error:
            raise self._wrong(f"{error.strerror or error}") from None

    def _decoded(
        self, block: bytes, decoder: msgspec.json.Decoder[list[E]], form: type[E]
    ) -> Iterator[E]:
        text = b"[" + block.strip(b" \t\r\n,") + b"]"
        try:
            yield from decoder.decode(text)
        except _WRONG:
            try:
                one_by_one = _ANY.decode(text)
            except _WRONG as error:
                raise self._wrong(f"its events are not JSON: {error}") from None
            for one in one_by_one:
                try:
                    yield msgspec.convert(one, form, strict=False)
                except msgspec.ValidationError:
                    self.skipped += 1

    def _refuse_long(self, text: bytes) -> None:
        if len(text) > LONGEST:
            raise self._wrong("it has no list of events")

    def _wrong(self, why: str) -> UsageError:
        message = f"`{display(self.path)}` is no trace: {why}"
        return UsageError([Problem("TW350", "", message, _FIX)])


_ANY: Final = msgspec.json.Decoder(list[Any])
_WRONG: Final = (msgspec.DecodeError, UnicodeDecodeError)
"""What a decoder raises for text that is not JSON in UTF-8."""


def _head(text: bytes) -> dict[str, Any]:
    """What a file says before its events; nothing where that is cut in a way nobody knows."""
    try:
        found = msgspec.json.decode(text.rstrip().rstrip(b",") + b"}")
    except _WRONG:
        return {}
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def _cut(text: bytes) -> tuple[int, bool]:
    """Where the last whole event ends, and whether the list of events ends behind it."""
    found = np.frombuffer(text, np.uint8)
    outside = _outside_strings(found)
    opens = ((found == _BRACE) | (found == _BRACKET)) & outside
    closes = ((found == _BRACE + 2) | (found == _BRACKET + 2)) & outside
    places = np.flatnonzero(opens | closes)
    depth = np.cumsum(np.where(opens[places], 1, -1))
    ended = np.flatnonzero(depth < 0)
    if len(ended):
        places, depth = places[: ended[0]], depth[: ended[0]]
    whole = np.flatnonzero(depth == 0)
    return (int(places[whole[-1]]) + 1 if len(whole) else 0), bool(len(ended))


_BRACE, _BRACKET, _QUOTE, _ESCAPE = b'{["\\'


def _outside_strings(found: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which bytes of some JSON are in no string, where its first one is in none."""
    quotes = np.flatnonzero(found == _QUOTE)
    behind = quotes[found[np.maximum(quotes - 1, 0)] == _ESCAPE]
    if len(behind):
        # A quote behind an odd number of backslashes is part of the string.
        escaped = [place for place in behind.tolist() if _backslashes(found, place) % 2]
        quotes = np.setdiff1d(quotes, escaped, assume_unique=True)
    turns = np.zeros(len(found), np.int8)
    turns[quotes[::2]] = 1
    turns[quotes[1::2]] = -1
    return np.cumsum(turns, dtype=np.int8) == 0


def _backslashes(found: NDArray[np.uint8], place: int) -> int:
    """How many stand right before a place."""
    count = 0
    while place - count > 0 and found[place - count - 1] == _ESCAPE:
        count += 1
    return count
