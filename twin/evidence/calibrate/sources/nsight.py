"""Nsight Systems' export to SQLite (`nsys export --type sqlite`): kernels by shape, host copies.

Nsight records no shapes. They are in the NVTX ranges of
`torch.autograd.profiler.emit_nvtx(record_shapes=True)`, `aten::mm, seq = 3, sizes = [[8, 4], ...]`:
a kernel belongs to the innermost range of its thread that holds its launch. Types are those that
the kernel's name tells. Other kernels count by name and duration. Copies from or to pinned memory
of 1 MiB or more are host copies. Tables: Nsight Systems user guide, "SQLite Schema Reference".

The file is opened read-only, and rows are read one by one, at most `MOST` of a table.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any, ClassVar, Final, final

import msgspec

from twin.errors import Problem, UsageError
from twin.evidence.calibrate.kernels import Kernel
from twin.evidence.calibrate.profiler import (
    COMMUNICATION,
    Inputs,
    MappedKernel,
    UnknownError,
    UnmappedTime,
    mapped,
    meaning,
)
from twin.evidence.calibrate.sources.base import Findings, Measurement, Source
from twin.evidence.calibrate.sources.pytorch_trace import told
from twin.evidence.traces.kernels import kind_of
from twin.loading.files import display

MOST: Final = 2_000_000
"""Kernels that are read: OURS, some hundred steps."""
LONGEST: Final = 600.0
"""Seconds after which a file is given up: OURS."""
LARGE: Final = 1 << 20
"""Bytes from which on a copy shows a link's rate."""
_KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
_RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_DIRECTIONS: Final = {1: "from_host", 2: "to_host"}
"""CUpti_ActivityMemcpyKind: host to device, device to host."""
_PINNED: Final = 1
"""Page-locked memory, where the export has no table `ENUM_CUDA_MEM_KIND` that says so."""
_SIZES: Final = re.compile(r"^(?P<name>[\w:]+),.*?\bsizes = (?P<sizes>\[\[.*?\]\])")
_BF16: Final = re.compile(r"bf16|bfloat16|nvjet_tst|_bbb_", re.IGNORECASE)
_FP16: Final = re.compile(r"f16f16|_h16|hhh|fp16|half", re.IGNORECASE)


@final
class Nsight(Source):
    """A profile of Nsight Systems."""

    reads: ClassVar[tuple[str, ...]] = ("nsight",)

    def read(self, path: Path) -> Findings:
        """Kernels with shapes, copies, and where the rest of the time went."""
        try:
            with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
                return _findings(_Export(db), path)
        except sqlite3.Error as error:
            message = f"`{display(path)}` cannot be read: {error}"
            fix = "export it again: `nsys export --type sqlite REPORT.nsys-rep`"
            raise UsageError([Problem("TW350", "", message, fix)]) from None


class _Export:
    """The tables of an export, whose columns differ between versions."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        until = monotonic() + LONGEST
        db.set_progress_handler(lambda: monotonic() > until, 100_000)
        self.cut: set[str] = set()
        """Tables that were not read to their end."""
        names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self.columns = {
            name: {column[1] for column in db.execute(f'PRAGMA table_info("{name}")')}
            for (name,) in names
        }

    def rows(self, table: str, *columns: str, order: str = "") -> Iterator[tuple[Any, ...]]:
        """Columns of a table; NULL for those that it lacks, nothing where there is no table."""
        known = self.columns.get(table)
        if known is None:
            return
        words = ", ".join(f'"{c}"' if c in known else f"NULL AS {c}" for c in columns)
        by = f' ORDER BY "{order}"' if order in known else ""
        found = self.db.execute(f'SELECT {words} FROM "{table}"{by} LIMIT {MOST + 1}')
        yield from islice(found, MOST)
        if next(found, None) is not None:
            self.cut.add(table)


def _findings(db: _Export, path: Path) -> Findings:
    strings = dict(db.rows("StringIds", "id", "value"))
    kernels, others, seconds = _kernels(db, strings, path)
    copies, unused = _copies(db, path)
    took: list[str] = []
    if kernels:
        part = 1 - sum(one.seconds for one in others) / seconds
        took.append(f"{len(kernels)} kernels by shape, {part:.0%} of {seconds:.3g} s")
    if copies:
        took.append(f"{len(copies)} rates of host copies")
    if others:
        unused = (*told(others, seconds), *unused)
    if db.cut:
        unused = (*unused, f"all but the first {MOST:,} rows of {', '.join(sorted(db.cut))}")
    if seconds and not kernels:
        fix = "record shapes: torch.autograd.profiler.emit_nvtx(record_shapes=True)"
        unused = (*unused, f"{display(path)}: no kernel has a shape; {fix}")
    device = next((str(name) for (name,) in db.rows("TARGET_INFO_GPU", "name") if name), "")
    return Findings(tuple(took), unused, device, copies, kernels)


def _kernels(
    db: _Export, strings: Mapping[int, str], path: Path
) -> tuple[tuple[Kernel, ...], tuple[UnmappedTime, ...], float]:
    """Kernels by shape (medians), the rest by name, and the seconds of all."""
    calls = _calls(db, strings)
    parts: defaultdict[int, float] = defaultdict(float)
    names: dict[int, tuple[_Range, str]] = {}
    rest: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for start, end, short, full, process, correlation in db.rows(
        _KERNELS, "start", "end", "shortName", "demangledName", "globalPid", "correlationId"
    ):
        name = strings.get(full) or strings.get(short) or "a kernel without a name"
        seconds, call = (end - start) * 1e-9, calls.get((process, correlation))
        if call is None or name.startswith(COMMUNICATION):
            kind = kind_of(name)
            why = "communication" if name.startswith(COMMUNICATION) else f"no shapes ({kind})"
            rest[name, why].append(seconds)
            continue
        parts[call.number] += seconds
        names.setdefault(call.number, (call, name))
    rows: defaultdict[MappedKernel, list[float]] = defaultdict(list)
    for number, seconds in parts.items():
        call, kernel = names[number]
        found = _meaning(call, kernel)
        if isinstance(found, MappedKernel):
            rows[found].append(seconds)
        else:
            rest[kernel, found].append(seconds)
    kernels = tuple(
        Kernel(
            path.name,
            "nsight",
            m.shape,
            m.op_class,
            m.work,
            median(own),
            m.backward,
            continuous=True,
        )
        for m, own in rows.items()
    )
    others = tuple(UnmappedTime(n, why, len(own), sum(own)) for (n, why), own in rest.items())
    return kernels, others, sum(map(sum, (*rows.values(), *rest.values())))


@dataclass(frozen=True, slots=True)
class _Range:
    """An NVTX range with the shapes of a call."""

    number: int
    name: str
    sizes: Sequence[Sequence[int]]
    gradient: Sequence[int] = ()
    """Sizes of the gradient, inside a backward pass."""


def _calls(db: _Export, strings: Mapping[int, str]) -> dict[tuple[Any, Any], _Range]:
    """The outermost range with a kernel of the twin around each launch, by process and
    correlation."""
    ranges: defaultdict[Any, list[tuple[int, int, _Range]]] = defaultdict(list)
    columns = ("start", "end", "text", "textId", "globalTid")
    for number, (start, end, text, told_by, thread) in enumerate(db.rows("NVTX_EVENTS", *columns)):
        found = _SIZES.match(text or strings.get(told_by) or "")
        if found is None or end is None:
            continue
        name, sizes = found["name"], _sizes(found["sizes"])
        if sizes and (mapped(name) or _is_backward(name)):
            ranges[thread].append((start, end, _Range(number, name, sizes)))
    calls: dict[tuple[Any, Any], _Range] = {}
    apart = "globalPid" in db.columns.get(_KERNELS, ())
    order = {thread: _Outer(own) for thread, own in ranges.items()}
    launches = db.rows(_RUNTIME, "start", "globalTid", "correlationId", order="start")
    for start, thread, correlation in launches:
        if thread in order and (call := order[thread].at(start)) is not None:
            # A thread's number begins with its process (Nsight Systems, `globalTid`).
            process = thread & ~0xFFFFFF if apart and thread is not None else None
            calls[process, correlation] = call
    return calls


def _is_backward(name: str) -> bool:
    return name.endswith("Backward0") and "::" not in name


class _Outer:
    """The outermost mapped range at times that only grow, with the gradient of the backward node
    around it."""

    def __init__(self, ranges: Iterable[tuple[int, int, _Range]]) -> None:
        self.ranges: list[tuple[int, int, _Range]] = []
        self.place, until, gradient = 0, -1, tuple[int, ...]()
        for start, end, own in sorted(ranges, key=lambda one: (one[0], -one[1])):
            if _is_backward(own.name):
                until, gradient = end, tuple(own.sizes[0])
                continue
            known = gradient if start < until else ()
            self.ranges.append((start, end, replace(own, gradient=known)))

    def at(self, time: int) -> _Range | None:
        while self.place < len(self.ranges) and self.ranges[self.place][1] < time:
            self.place += 1
        if self.place == len(self.ranges) or self.ranges[self.place][0] > time:
            return None
        return self.ranges[self.place][2]


def _sizes(text: str) -> list[list[int]]:
    """`[[8, 4], []]`; nothing where it is cut or nested otherwise."""
    try:
        return msgspec.json.decode(text, type=list[list[int]])
    except msgspec.DecodeError:
        return []


def _meaning(call: _Range, kernel: str) -> MappedKernel | str:
    """What a call did, with the type that its kernel's name tells."""
    half = _BF16.search(kernel) or _FP16.search(kernel)
    bare = call.name.removeprefix("aten::")
    if not half and bare in ("mm", "addmm", "_grouped_mm"):
        return "the kernel's name tells no 16-bit type"
    types = ["c10::BFloat16"] * len(call.sizes)
    try:
        return meaning(call.name, Inputs(call.sizes, types, [""] * len(call.sizes), call.gradient))
    except UnknownError as error:
        return str(error)


def _copies(db: _Export, path: Path) -> tuple[tuple[Measurement, ...], tuple[str, ...]]:
    """Medians of large copies from and to pinned memory, by direction and size."""
    times: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    pageable = 0
    kinds = db.rows("ENUM_CUDA_MEM_KIND", "id", "label")
    pinned = next((kind for kind, label in kinds if str(label).lower() == "pinned"), _PINNED)
    columns = ("start", "end", "bytes", "copyKind", "srcKind", "dstKind")
    for start, end, size, direction, source, target in db.rows(_COPIES, *columns):
        what = _DIRECTIONS.get(direction)
        if what is None or size < LARGE or end <= start:
            continue
        memory = source if what == "from_host" else target
        if memory is not None and memory != pinned:
            pageable += 1
            continue
        times[what, size].append((end - start) * 1e-9)
    found = tuple(
        Measurement(what, float(size), 1, 1, median(own), "s", f"{display(path)}, {what}")
        for (what, size), own in sorted(times.items())
    )
    why = (f"{display(path)}: {pageable} copies of pageable memory",) if pageable else ()
    return found, why
