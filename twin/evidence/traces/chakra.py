"""What a GPU did, from an execution trace of MLCommons Chakra (`*.et`) whose nodes carry times.

Chakra's converter makes such traces of PyTorch's, and simulators write them back. A node of the
host says so (`is_cpu_op`), and is left out; all else is a kernel, a copy, a collective or a
message.
Numbers of fields and kinds are those of schema/protobuf/et_def.proto (mlcommons/chakra 21585d8).

Limits: times are whole microseconds, unless `duration_ns` says more. When the host launched a
kernel is unknown, so idle time is `other`. Groups are told by name, without their ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from twin.errors import Problem, UsageError
from twin.evidence.traces.chrome import BLOCK, Arguments
from twin.evidence.traces.rank import NEVER, NOTHING, Columns, RankTrace, direction_of
from twin.evidence.traces.wire_format import fields, varint
from twin.loading.files import display, unpacked

_LONGEST: Final = 1 << 24
"""Bytes of a node; what is longer is no trace of this kind."""
_LARGEST: Final = 1 << 52
"""Times in us, since 1970, and streams are less."""
_LAST_BYTE: Final = 0x7F
"""The most that the last byte of a length is."""
_NAME, _KIND, _START, _DURATION, _ATTRIBUTE = 2, 3, 6, 7, 10
"""Fields of a node."""
_MOVES: Final = {2: "Memcpy HtoD", 3: "Memcpy DtoH", 5: "send", 6: "recv", 7: "collective"}
"""Kinds of nodes that are no kernels, as kernels of PyTorch's traces are called."""
_COLLECTIVES: Final = {
    0: "all_reduce", 2: "all_gather", 3: "gather", 4: "scatter", 5: "broadcast", 6: "all_to_all",
    7: "reduce_scatter",
}  # fmt: skip
_RANK: Final = re.compile(r"(\d+)\.et$")


@dataclass
class _Reader:
    """Sorts the nodes of one file."""

    words: dict[str, int] = field(default_factory=dict[str, int])
    says: dict[tuple[str, str], tuple[int, Arguments]] = field(
        default_factory=lambda: {("", ""): (0, NOTHING)}
    )
    rows: Columns = field(default_factory=Columns)
    untimed: int = 0

    def take(self, node: bytes) -> None:
        """One node."""
        told = [one for one in fields(node) if one[0] != _ATTRIBUTE]
        known: dict[int, Any] = dict(told)
        about = dict(_attribute(value) for number, value in fields(node) if number == _ATTRIBUTE)
        length = _number(about.get("duration_ns")) or 1000 * _number(known.get(_DURATION))
        if about.get("is_cpu_op") or not length:
            return
        start = 1000 * _number(known.get(_START))
        if not start:
            self.untimed += 1
            return
        name, says = self._named(known, about)
        word = self.words.setdefault(name, len(self.words))
        stream = _number(about.get("stream", about.get("tid")))
        way = direction_of(name)
        self.rows.add(word, says, stream, start, start + length, way)

    def _named(self, known: dict[int, Any], about: dict[str, Any]) -> tuple[str, int]:
        """The name of a node as a kernel's, and what it says of its group."""
        own = known.get(_NAME, b"")
        name = own.decode("utf-8", "replace") if isinstance(own, bytes) else ""
        move = _MOVES.get(_number(known.get(_KIND)))
        if move is None or move.startswith("Memcpy"):
            return (name if move is None else f"{move} {name}"), 0
        what = move
        if move == "collective":
            what = _COLLECTIVES.get(_number(about.get("comm_type")), "collective")
        group = str(about.get("pg_name", ""))
        told = Arguments(collective=what, group=group, purpose=str(about.get("pg_desc", "")))
        number = self.says.setdefault((what, group), (len(self.says), told))[0]
        return f"ncclKernel {what}: {name}", number


def _number(value: Any) -> int:
    """A whole number that a column holds, also as a text; 0 for what is none, as in a damaged
    file."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,16}", value):
        value = int(value)
    return value if isinstance(value, int) and abs(value) < _LARGEST else 0


def _attribute(text: int | bytes) -> tuple[str, Any]:
    """Name and value of an attribute: a number, a truth or a text."""
    name, value = "", None
    for number, one in fields(text if isinstance(text, bytes) else b""):
        if number == 1 and isinstance(one, bytes):
            name = one.decode("utf-8", "replace")
        elif number > 2:  # 2 is a description
            value = one.decode("utf-8", "replace") if isinstance(one, bytes) else one
    return name, value


def read_chakra(path: Path) -> Sequence[RankTrace]:
    """What the GPU of a trace did. Raises `UsageError` where it carries no times."""
    reader, file = _Reader(), _File(path)
    for node in file.nodes():
        reader.take(node)
    table = reader.rows.table(6)
    if not table.shape[1]:
        message = f"`{display(path)}`: no operation of a GPU has a start and a duration"
        fix = "a trace that was planned has to be played first; one that was run is converted"
        raise UsageError([Problem("TW358", "", message, fix)])
    table = table[:, np.argsort(table[3], kind="stable")]
    name, says, stream, start, end, way = table
    never, nowhere = np.full(len(start), NEVER, np.int64), np.full(len(start), -1, np.int64)
    rank = _RANK.search(path.name)
    head = {"distributedInfo": {"rank": int(rank[1])}} if rank else {}
    told = tuple(one for _, one in reader.says.values())
    return [
        RankTrace(
            str(display(path)), 0, tuple(reader.words), told, name, says, stream, start, end, start,
            never, nowhere, way < 0, nowhere, (), {}, head, file.torn, reader.untimed,
        )
    ]  # fmt: skip


@dataclass
class _File:
    """Messages behind their lengths."""

    path: Path
    torn: bool = False

    def nodes(self) -> Iterator[bytes]:
        """All but the first message, which is about the trace."""
        rest, first = b"", True
        try:
            with unpacked(self.path) as raw:
                while part := raw.read(BLOCK):
                    rest += part
                    whole, rest = self._whole(rest)
                    yield from whole[1:] if first else whole
                    first = first and not whole
        except OSError as error:
            raise self._wrong(f"{error.strerror or error}") from None
        self.torn = bool(rest)

    def _whole(self, text: bytes) -> tuple[list[bytes], bytes]:
        """The whole messages that a text begins with, and what is left."""
        found: list[bytes] = []
        at = 0
        while at < len(text):
            length, begin = varint(text, at)
            if length > _LONGEST:
                raise self._wrong("its messages have no lengths")
            if text[begin - 1] > _LAST_BYTE or begin + length > len(text):
                break
            found.append(text[begin : begin + length])
            at = begin + length
        return found, text[at:]

    def _wrong(self, why: str) -> UsageError:
        message = f"`{display(self.path)}` is no execution trace of Chakra: {why}"
        return UsageError([Problem("TW350", "", message, "Chakra's converter writes one")])
