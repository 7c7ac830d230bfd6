"""What a rank without a GPU did, from a trace of its host: the host is the device.

Where a trainer names its passes and transfers in annotations, these are what ran, whatever is
inside them; else PyTorch's operators and gloo's collectives are. A pass is an annotation that names
one (`forward, chunk 0, micro-batch 3`). A transfer says its group, what it moves, and the ranks in
it (`expert: dispatch [0, 1]`) or its sender and receiver (`pipeline: activations [0 > 2]`).

Limit: time between two of them, in Python or waiting for a lock, is in none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from twin.evidence.traces.chrome import Arguments, Chrome, Event
from twin.evidence.traces.rank import (
    HOST,
    NEVER,
    NOTHING,
    STEP,
    Columns,
    Ints,
    RankTrace,
    direction_of,
)
from twin.loading.files import display

_TRANSFER: Final = re.compile(r"(\w+): ([\w .-]+) \[(\d+(?:, \d+)*|\d+ > \d+)\]$")
_LIBRARY: Final = "gloo:"
_OPERATOR: Final = "aten::"
_UPDATE: Final = re.compile("optimizer", re.IGNORECASE)


@dataclass
class _Reader:
    """Sorts the events of one file."""

    words: dict[str, int] = field(default_factory=dict[str, int])
    told: dict[str, tuple[int, Arguments]] = field(default_factory=lambda: {"": (0, NOTHING)})
    threads: dict[tuple[int | str, int | str], int] = field(
        default_factory=dict[tuple[int | str, int | str], int]
    )
    rows: Columns = field(default_factory=Columns)
    """Name, what it says, thread, start, end, direction: 1 forward, -1 backward, 0 neither."""
    steps: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])

    def take(self, event: Event) -> None:
        """One event."""
        if event.cat == "user_annotation":
            if event.name.startswith(STEP):
                start, end = event.times
                self.steps[int(event.name.removeprefix(STEP))] = start, end
            else:
                self._annotation(event)
        elif event.cat == "cpu_op" and event.name.startswith(_OPERATOR):
            self._add(event, event.name, 0, 0)

    def _annotation(self, event: Event) -> None:
        found = _TRANSFER.match(event.name)
        way = direction_of(event.name)
        if found:
            self._add(event, f"{found[1]}: {found[2]}", self._say(found), 0)
        elif event.name.startswith(_LIBRARY):
            self._add(event, event.name, 0, 0)
        elif way or _UPDATE.search(event.name):
            # A pass is the same kernel, whichever micro-batch it is of.
            self._add(event, event.name.split(",")[0], 0, way)

    def _say(self, found: re.Match[str]) -> int:
        purpose, what, ranks = found.groups()
        members = len(re.findall(r"\d+", ranks))
        known = Arguments(collective=what, members=members, purpose=purpose, ranks=ranks)
        return self.told.setdefault(found[0], (len(self.told), known))[0]

    def _add(self, event: Event, name: str, says: int, way: int) -> None:
        word = self.words.setdefault(name, len(self.words))
        thread = self.threads.setdefault((event.pid, event.tid), len(self.threads))
        self.rows.add(word, says, thread, *event.times, way)

    def rank(self, file: Chrome) -> RankTrace | None:
        """All that is in no other, by start; None where nothing is."""
        table = self.rows.table(6)
        if (table[1] > 0).any():
            # Where the trainer tells its transfers, the library's own names say nothing more.
            library = [at for name, at in self.words.items() if name.startswith(_LIBRARY)]
            table = table[:, ~np.isin(table[0], library)]
        table = table[:, _outermost(*table[2:5])]
        table = table[:, np.argsort(table[3], kind="stable")]
        if not table.shape[1]:
            return None
        name, says, thread, start, end, way = table
        never = np.full(len(start), NEVER, np.int64)
        nowhere = np.full(len(start), -1, np.int64)
        told = tuple(one for _, one in self.told.values())
        return RankTrace(
            str(display(file.path)), HOST, tuple(self.words), told, name, says, thread, start, end,
            start, never, thread, way < 0, nowhere, (), self.steps, file.head, file.torn,
            file.skipped,
        )  # fmt: skip


def _outermost(thread: Ints, start: Ints, end: Ints) -> NDArray[np.int64]:
    """Places of those that begin in no earlier one of their thread."""
    order = np.lexsort((-end, start, thread))
    found: list[Ints] = []
    for own in np.unique(thread).tolist():
        mine = order[thread[order] == own]
        until = np.maximum.accumulate(end[mine])
        before = np.concatenate([[np.iinfo(np.int64).min], until[:-1]])
        found.append(mine[start[mine] >= before])
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def read_host(path: Path) -> Sequence[RankTrace]:
    """What the host of a trace did as one device; nothing where it did nothing."""
    file, reader = Chrome(path), _Reader()
    for event in file.events(Event):
        reader.take(event)
    found = reader.rank(file)
    return [] if found is None else [found]
