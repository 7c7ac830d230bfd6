"""Some steps of a run's timeline (`twin.evidence.measured`), without reading the rest of it.

A long run's files are long, and its newest steps are what a live view needs. So the places of the
steps in a file are found by halving, in each process's part of it, and only they are read.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

from twin.errors import UsageError
from twin.evidence.measured.run_folder import MeasuredRun, read
from twin.loading.files import opened

FOLDER: Final = "timeline"
_HEADER: Final = b'{"kind": "header"'
_STEP: Final = b'{"kind": "step"'


def window(folder: Path, first: int, last: int) -> MeasuredRun | None:
    """A run as if it consisted of the steps `first` to `last`, as they ran last; None where its
    timeline has none of them, or says nothing sound."""
    with TemporaryDirectory() as place:
        for path in _files(folder):
            (Path(place) / path.name).write_bytes(_excerpt(path, first, last))
        try:
            return read(place)
        except UsageError:
            return None


def has_timeline(folder: Path) -> bool:
    """Whether a run writes one."""
    return bool(_files(folder))


def first_start(folder: Path) -> int | None:
    """When the first span of the first rank began (ns); None where that is not known."""
    for path in _files(folder)[:1]:
        with _mapped(path) as data:
            at = data.find(b'"start": ') if data else -1
            if data and at >= 0 and (found := _line(data, data.rfind(b"\n", 0, at) + 1)):
                start = found.get("start")
                return start if isinstance(start, int) and start > 0 else None
    return None


def pause_share(folder: Path) -> float | None:
    """Time between steps (evaluations, checkpoints) over time in steps, since the newest process of
    the first rank began; None where that is not known."""
    for path in _files(folder)[:1]:
        with _mapped(path) as data:
            if data:
                return _pause_share(data)
    return None


def _pause_share(data: mmap.mmap) -> float | None:
    within, ends = 0, list[int]()
    at = max(0, data.rfind(_HEADER))
    while (at := data.find(_STEP, at)) >= 0 and (found := _line(data, at)):
        start, end = found.get("start"), found.get("end")
        if isinstance(start, int) and isinstance(end, int):
            within += end - start
            ends += [start, end]
        at += 1
    if len(ends) < 4 or within <= 0:
        return None
    return max(0.0, (ends[-1] - ends[0]) / within - 1)


def _files(folder: Path) -> list[Path]:
    return sorted((folder / FOLDER).glob("rank-*.jsonl"))


@contextmanager
def _mapped(path: Path) -> Generator[mmap.mmap | None]:
    """The file in memory as it is now; None of an empty one, or one that is gone."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(opened(path))
            data = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError):  # gone, or empty
            data = None
        yield data


def _excerpt(path: Path, first: int, last: int) -> bytes:
    """The lines of some steps, behind the headers of the processes that wrote them."""
    with _mapped(path) as data:
        if data is None:
            return b""
        starts = list[int]()
        at = data.find(_HEADER)
        while at >= 0:
            starts.append(at)
            at = data.find(_HEADER, at + 1)
        ends = [*starts, data.rfind(b"\n") + 1][1:]
        parts = [pair for pair in zip(starts, ends, strict=True) if pair[0] < pair[1]]
        return b"".join(_of_process(data, part, first, last) for part in parts)


def _of_process(data: mmap.mmap, part: tuple[int, int], first: int, last: int) -> bytes:
    begin = _first_of(data, part, first)
    end = _first_of(data, (begin, part[1]), last + 1)
    header = data[part[0] : data.find(b"\n", part[0]) + 1]
    # A header alone stays, too: a part that begins later drops what ran again.
    return header + data[max(begin, part[0] + len(header)) : end]


def _first_of(data: mmap.mmap, part: tuple[int, int], step: int) -> int:
    """Where the first line of a step, or of one after it, begins: steps of one process only grow,
    and its header counts as step 0."""
    low, high = part  # both at beginnings of lines
    while low < high:
        middle = max(low, data.rfind(b"\n", low, (low + high) // 2) + 1)
        line = _line(data, middle)
        number = 0 if line is None else line.get("step", 0)
        if line is None or not isinstance(number, int) or number >= step:
            high = middle
        else:
            low = data.find(b"\n", middle) + 1
    return low


def _line(data: mmap.mmap, at: int) -> Mapping[str, Any] | None:
    """The line that begins here; None where it is torn or no object."""
    end = data.find(b"\n", at)
    if end < 0:
        return None
    try:
        found = json.loads(data[at:end])
    except (ValueError, RecursionError):
        return None
    return cast(Mapping[str, Any], found) if isinstance(found, dict) else None
