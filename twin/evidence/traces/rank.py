"""What one GPU did, from a trace: its kernels and copies, when the host launched each, and in which
annotation and on which thread.

A kernel is launched by the call of the CUDA runtime that has its correlation number. What is
launched while autograd runs on that thread (`autograd::engine::evaluate_function`) is of a backward
pass, anything else of a forward pass, unless its annotation says otherwise. Annotations
(`torch.profiler.record_function`, NVTX) name what they hold. A step is what is launched inside a
`ProfilerStep#N`, or the whole trace where there is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from twin.evidence.traces.chrome import Arguments, Chrome, Event
from twin.loading.files import display

Ints = NDArray[np.int64]
GPU: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
LAUNCHES: Final = frozenset({"cuda_runtime", "cuda_driver"})
HOST: Final = -1
"""The device of a rank without a GPU."""
_AUTOGRAD: Final = "autograd::engine::evaluate_function"
STEP: Final = "ProfilerStep#"
NOTHING: Final = Arguments()
NEVER: Final = -1
"""Start and end of a launch that was not recorded."""


@dataclass(frozen=True, slots=True)
class Stretches:
    """Stretches of time on threads of the host, one inside another, cut where the innermost one
    changes; by thread, then by time (nanoseconds)."""

    thread: Ints
    start: Ints
    innermost: Ints
    """From this start on, up to the next of the thread; -1 for none."""

    @staticmethod
    def of(thread: Ints, start: Ints, end: Ints) -> Stretches:
        """Those with these threads, starts and ends, numbered as they come."""
        order = np.lexsort((-end, start, thread))
        cuts: list[tuple[int, int, int]] = []
        open_ones: list[tuple[int, int, int]] = []

        def close(until: int, own: int) -> None:
            while open_ones and (open_ones[-1][0] != own or open_ones[-1][1] <= until):
                line, ended, _ = open_ones.pop()
                below = open_ones[-1][2] if open_ones else -1
                cuts.append((line, ended, below))

        for row in order.tolist():
            own, begun, ended = int(thread[row]), int(start[row]), int(end[row])
            close(begun, own)
            cuts.append((own, begun, row))
            open_ones.append((own, ended, row))
        close(NEVER, NEVER - 1)
        # Of cuts at one time the last one made holds.
        table = np.array(cuts, np.int64).reshape(-1, 3).T
        return Stretches(*table[:, np.lexsort((table[1], table[0]))])

    def at(self, thread: Ints, time: Ints) -> Ints:
        """The innermost one that holds each time on its thread; -1 for none."""
        found = np.full(len(time), -1, np.int64)
        for own in np.unique(self.thread).tolist():
            line, rows = self.thread == own, thread == own
            place = np.searchsorted(self.start[line], time[rows], side="right") - 1
            known = np.concatenate([self.innermost[line], [-1]])
            found[rows] = known[place]
        return found


@dataclass(frozen=True, slots=True)
class RankTrace:
    """Everything that ran on one GPU, a number per kernel or copy, by start; nanoseconds."""

    file: str
    device: int
    names: tuple[str, ...]
    """Kernels by name."""
    told: tuple[Arguments, ...]
    """What collectives say, each set of words once."""
    name: Ints
    """Index into `names`."""
    says: Ints
    """Index into `told`."""
    stream: Ints
    start: Ints
    end: Ints
    launched: Ints
    """When the host began to launch it; `NEVER` where that is not in the trace."""
    issued: Ints
    """When the host had launched it."""
    thread: Ints
    """That launched it."""
    backward: NDArray[np.bool_]
    """Of a backward pass: so its annotation says, or else autograd ran then, on that thread."""
    annotation: Ints
    """In which it was launched, an index into `annotations`; -1 for none."""
    annotations: tuple[str, ...]
    steps: Mapping[int, tuple[int, int]]
    """Start and end of every `ProfilerStep` on the host, by number."""
    head: Mapping[str, Any]
    torn: bool
    skipped: int

    def __len__(self) -> int:
        return len(self.start)

    @property
    def gpu(self) -> str:
        """The device in its own words; empty where nobody wrote it."""
        devices: Sequence[Mapping[str, Any]] = self.head.get("deviceProperties") or []
        return next(
            (str(one.get("name", "")) for one in devices if one.get("id") == self.device), ""
        )

    @property
    def ranks(self) -> int | None:
        """Of the run; None where nobody wrote it."""
        told: Mapping[str, Any] = self.head.get("distributedInfo") or {}
        found = told.get("world_size")
        return found if isinstance(found, int) else None

    @property
    def rank(self) -> int | None:
        """Its number; None where nobody wrote it."""
        told: Mapping[str, Any] = self.head.get("distributedInfo") or {}
        found = told.get("rank")
        return found if isinstance(found, int) else None

    def of_step(self, number: int | None) -> NDArray[np.bool_]:
        """Which kernels the host launched in a step; all for None."""
        if number is None:
            return np.ones(len(self), np.bool_)
        start, end = self.steps[number]
        return (self.launched >= start) & (self.launched < end)


@dataclass
class Columns:
    """Numbers of events as they come."""

    rows: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    parts: list[Ints] = field(default_factory=list[Ints])

    def add(self, *row: int) -> None:
        """One event."""
        self.rows.append(row)
        if len(self.rows) >= _PACKED:
            self.pack()

    def pack(self) -> None:
        """Rows take a twentieth of the memory as an array."""
        if self.rows:
            self.parts.append(np.array(self.rows, np.int64).T)
            self.rows = []

    def table(self, columns: int) -> Ints:
        """All of them, a column per quantity."""
        self.pack()
        return np.concatenate([np.zeros((columns, 0), np.int64), *self.parts], axis=1)


_PACKED: Final = 50_000
"""Rows that are kept as tuples."""


@dataclass
class _Reader:
    """Sorts the events of one file."""

    words: dict[str, int] = field(default_factory=dict[str, int])
    says: dict[tuple[Any, ...], tuple[int, Arguments]] = field(
        default_factory=lambda: {_key(NOTHING): (0, NOTHING)}
    )
    threads: dict[tuple[int | str, int | str], int] = field(
        default_factory=dict[tuple[int | str, int | str], int]
    )
    autograd: Columns = field(default_factory=Columns)
    gpu: Columns = field(default_factory=Columns)
    launches: Columns = field(default_factory=Columns)
    notes: list[tuple[str, int, int, int]] = field(default_factory=list[tuple[str, int, int, int]])
    steps: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])

    def take(self, event: Event) -> None:
        """One event."""
        start, end = event.times
        told = event.args
        if event.cat in GPU:
            stream = told.stream if told.stream is not None else _number(event.tid)
            device = told.device if told.device is not None else _number(event.pid)
            word = self.words.setdefault(event.name, len(self.words))
            number = told.correlation if told.correlation is not None else NEVER
            says = self._say(told) if told.collective or told.members else 0
            self.gpu.add(device, word, says, stream, start, end, number)
        elif event.cat in LAUNCHES and told.correlation is not None:
            self.launches.add(told.correlation, start, end, self._thread(event))
        elif event.cat == "cpu_op" and event.name.startswith(_AUTOGRAD):
            self.autograd.add(self._thread(event), start, end)
        elif event.cat == "user_annotation":
            if event.name.startswith(STEP):
                self.steps[int(event.name.removeprefix(STEP))] = (start, end)
            else:
                self.notes.append((event.name, self._thread(event), start, end))

    def _thread(self, event: Event) -> int:
        return self.threads.setdefault((event.pid, event.tid), len(self.threads))

    def _say(self, told: Arguments) -> int:
        return self.says.setdefault(_key(told), (len(self.says), told))[0]

    def ranks(self, file: Chrome) -> tuple[RankTrace, ...]:
        """What each device did."""
        table, launches = self.gpu.table(7), self.launches.table(4)
        launches = launches[:, np.argsort(launches[0], kind="stable")]
        autograd, named = Stretches.of(*self.autograd.table(3)), _Named(self.notes)
        telling = [one for one in self.notes if direction_of(one[0])]
        passes, ways = _Named(telling), np.array([*(direction_of(one[0]) for one in telling), 0])
        found: list[RankTrace] = []
        for device in np.unique(table[0]).tolist():
            own = table[1:, table[0] == device]
            own = own[:, np.argsort(own[3], kind="stable")]
            name, says, stream, start, end, number = own
            launched, issued, thread = _launches(launches, number)
            said, runs = ways[passes.at(thread, launched)], autograd.at(thread, launched) >= 0
            backward = np.where(said == 0, runs, said < 0)
            found.append(
                RankTrace(
                    str(display(file.path)), device, tuple(self.words),
                    tuple(told for _, told in self.says.values()), name, says, stream, start, end,
                    launched, issued, thread, backward, named.at(thread, launched),
                    tuple(one[0] for one in self.notes), self.steps, file.head, file.torn,
                    file.skipped,
                )
            )  # fmt: skip
        return tuple(found)


class _Named:
    """Annotations: name, thread, start and end of each."""

    def __init__(self, notes: Sequence[tuple[str, int, int, int]]) -> None:
        thread, start, end = np.array([one[1:] for one in notes], np.int64).reshape(-1, 3).T
        self._own = Stretches.of(thread, start, end)
        self._any = Stretches.of(np.zeros_like(thread), start, end)

    def at(self, thread: Ints, time: Ints) -> Ints:
        """The innermost one that holds each time on its thread, or else on any: backward passes run
        on threads of their own, while the one that named them waits. -1 for none."""
        found = self._own.at(thread, time)
        return np.where(found < 0, self._any.at(np.zeros_like(thread), time), found)


_FORWARD: Final = re.compile(r"\(F\)|forward|fwd", re.IGNORECASE)
_BACKWARD: Final = re.compile(r"\([BWI]\)|backward|bwd|wgrad|dgrad", re.IGNORECASE)


def direction_of(name: str) -> int:
    """Which pass an annotation names: 1 the forward one, -1 the backward one, 0 none or both."""
    return bool(_FORWARD.search(name)) - bool(_BACKWARD.search(name))


def _key(told: Arguments) -> tuple[str | int, ...]:
    return told.collective, told.members, told.group, told.purpose, told.ranks


def _number(text: int | str) -> int:
    """A thread or process of the device as a number."""
    return text if isinstance(text, int) else int(text) if text.isdigit() else 0


def _launches(launches: Ints, number: Ints) -> tuple[Ints, Ints, Ints]:
    """When the launch of each kernel began and ended, and its thread, by correlation number."""
    nothing = np.full(len(number), NEVER, np.int64)
    if not launches.shape[1]:
        return nothing, nothing, nothing
    at = np.minimum(np.searchsorted(launches[0], number), launches.shape[1] - 1)
    known = (launches[0, at] == number) & (number >= 0)
    start, end, thread = (np.where(known, launches[row, at], NEVER) for row in (1, 2, 3))
    return start, end, thread


def read_gpus(path: Path) -> tuple[RankTrace, ...]:
    """What each GPU of a trace did; none where there is none in it."""
    file, reader = Chrome(path), _Reader()
    for event in file.events(Event):
        reader.take(event)
    return reader.ranks(file)
