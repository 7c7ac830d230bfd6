"""A run's folder: the timelines of all its ranks, and the steps that all of them finished."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from twin.errors import Origin, Problem, UsageError
from twin.evidence.measured.layout import Layout, layout
from twin.evidence.measured.lines import Header
from twin.evidence.measured.rank import Rank, read_rank

TIMELINE: Final = "timeline"
"""The folder in a run's folder."""
_FILE: Final = re.compile(r"rank-(\d{5})\.jsonl")


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What all ranks of a run wrote down."""

    folder: Path
    layout: Layout
    ranks: tuple[Rank, ...]
    steps: tuple[int, ...]
    """Finished by every rank, ascending."""

    @property
    def name(self) -> str:
        """What people call the run: its folder."""
        return self.folder.absolute().name

    @property
    def header(self) -> Header:
        """What its ranks say of it."""
        return self.ranks[0].header

    def window(self, step: int) -> tuple[int, int]:
        """When the first rank began a step, and the last ended it (ns of the ranks' clock)."""
        times = [rank.steps[step] for rank in self.ranks]
        return min(start for start, _ in times), max(end for _, end in times)

    def step_ns(self, step: int) -> int:
        """How long a step took."""
        start, end = self.window(step)
        return end - start


def is_run(path: str | Path) -> bool:
    """Whether a folder is that of a run with a timeline, or the timeline itself."""
    return bool(_files(_timeline(Path(path))))


def found(folder: Path) -> tuple[Path, ...]:
    """The runs with a timeline among the folders of a folder, the newest first."""
    try:
        runs = [one for one in folder.iterdir() if one.is_dir() and is_run(one)]
        return tuple(sorted(runs, key=lambda one: (-_changed(one), one.name)))
    except OSError:
        return ()


def stamp(folder: Path) -> int:
    """Changes when a rank writes more."""
    files = _files(_timeline(folder)).values()
    return hash(tuple((str(one), one.stat().st_mtime_ns, one.stat().st_size) for one in files))


def read(path: str | Path) -> MeasuredRun:
    """The run in a folder.

    Raises `UsageError` where there is none, a file of it says nothing sound, ranks are missing or
    do not belong together, or no step was finished by all of them.
    """
    folder = Path(path)
    timeline = _timeline(folder)
    files = _files(timeline)
    if not files:
        raise _nothing(folder)
    try:
        known = {number: read_rank(file) for number, file in files.items()}
    except OSError as error:
        message = f"`{error.filename}` cannot be read: {error.strerror}"
        raise UsageError([Problem("TW330", "", message)]) from None
    ranks = _together(known, files)
    header = ranks[0].header
    laid = layout(header.parallel, header.ranks, header.microbatches, str(files[0]))
    stages = [rank.header.stage for rank in ranks]
    if tuple(stages) != laid.stage:
        message = (
            f"its ranks say that they are on stages {stages}, and their layout {[*laid.stage]}"
        )
        raise _apart(message, files[0])
    run = MeasuredRun(
        timeline.parent if folder.name == TIMELINE else folder, laid, ranks, _finished(ranks)
    )
    _check(run, files)
    return run


def _timeline(folder: Path) -> Path:
    inside = folder / TIMELINE
    return inside if inside.is_dir() else folder


def _files(timeline: Path) -> dict[int, Path]:
    """The files of ranks, by rank."""
    try:
        names = [(_FILE.fullmatch(one.name), one) for one in timeline.iterdir()]
    except OSError:
        return {}
    return dict(sorted((int(name[1]), one) for name, one in names if name))


def _changed(run: Path) -> int:
    return max(one.stat().st_mtime_ns for one in _files(_timeline(run)).values())


def _together(known: dict[int, Rank], files: dict[int, Path]) -> tuple[Rank, ...]:
    """The ranks of the newest layout, in order; those of an earlier, larger one are left out."""
    first = min(known)
    header = known.get(0, known[first]).header
    missing = [number for number in range(header.ranks) if number not in known]
    if missing:
        listed = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        message = f"the run has {header.ranks} ranks, and there is no timeline of rank {listed}"
        raise _apart(message, files[first], "copy the files of all machines into one folder")
    for number in range(header.ranks):
        other = known[number].header
        if other.rank != number:
            raise _apart(f"this file says that it is of rank {other.rank}", files[number])
        if other.layout != header.layout:
            message = f"rank {number} ran another model or layout than rank 0"
            raise _apart(message, files[number], "leave the files of one run in the folder")
    return tuple(known[number] for number in range(header.ranks))


def _finished(ranks: tuple[Rank, ...]) -> tuple[int, ...]:
    return tuple(sorted(set[int].intersection(*(set(rank.steps) for rank in ranks))))


def _check(run: MeasuredRun, files: dict[int, Path]) -> None:
    """Raise where there is nothing to look at, or ranks went by different clocks."""
    if not run.steps:
        message = f"no step of `{run.folder}` was finished by every rank"
        fix = "wait for the first step, or run again"
        raise UsageError([Problem("TW334", "", message, fix)])
    for step in run.steps:
        times = [rank.steps[step] for rank in run.ranks]
        late = max(range(len(times)), key=lambda rank: times[rank][0])
        if times[late][0] >= min(end for _, end in times):
            message = f"rank {late} began step {step} when another had ended it"
            fix = "ranks must go by one clock: take those of one machine"
            raise UsageError([Problem("TW336", "", message, fix, Origin(str(files[late])))])


def _nothing(folder: Path) -> UsageError:
    if not folder.is_dir():
        message = f"there is no folder `{folder}`"
    else:
        message = f"`{folder}` holds no timeline"
    fix = f"a run's folder has `{TIMELINE}/rank-00000.jsonl` in it"
    return UsageError([Problem("TW330", "", message, fix)])


def _apart(message: str, file: Path, fix: str = "") -> UsageError:
    return UsageError([Problem("TW333", str(file), message, fix)])
