"""A run's folder: its layout, the timelines of all ranks, and the steps that all ranks finished.

Ranks are numbered as the trainer numbers them, which is the simulator's order
(`twin.planning.mesh`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError

from twin.errors import Origin, Problem, UsageError
from twin.evidence.measured.timeline import Header, Rank, read_rank
from twin.planning.mesh import group_numbers, ranks_of_stages, stages_agree
from twin.planning.types import Mesh
from twin.schedules.base import ChunkMap, Schedule
from twin.spec.axis import members

_ORDER: Final = ("tensor", "context", "expert", "data", "pipeline")
_Degree = Annotated[int, Field(ge=1, le=1_000_000)]


@dataclass(frozen=True, slots=True)
class _Section:
    """The fields of the section `parallel` that a layout needs."""

    pipeline: _Degree = 1
    virtual: _Degree = 1
    expert: _Degree = 1
    schedule: str | dict[str, Any] = "1f1b"
    order: tuple[str, ...] = _ORDER


_SECTION = TypeAdapter(_Section)


@dataclass(frozen=True)
class RunLayout:
    """The ranks of a run."""

    mesh: Mesh
    schedule: Schedule
    virtual: int

    @cached_property
    def chunk_map(self) -> ChunkMap:
        """Where the chunks live."""
        return self.schedule.chunk_map(self.mesh.pipeline, self.virtual)

    @cached_property
    def stage(self) -> tuple[int, ...]:
        """The stage of every rank."""
        return tuple(self._of_ranks(self._places[0]))

    @cached_property
    def pipelines(self) -> tuple[tuple[int, ...], ...]:
        """For every rank the ranks of its pipeline, by stage."""
        stages, place = ranks_of_stages(self.mesh), self._of_ranks(self._places[1])
        columns: list[list[int]] = stages.T.tolist()
        return tuple(tuple(columns[at]) for at in place)

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """The stage and the place in it, by stage and place."""
        return np.indices((self.mesh.pipeline, self.mesh.stage_ranks), np.int64)

    @cached_property
    def groups(self) -> Mapping[str, NDArray[np.int64]]:
        """For every kind of group, the number of the one that a rank belongs to."""
        numbers = {
            kind: np.array(self._of_ranks(self._mirrored(kind, by_stage)))
            for kind, by_stage in group_numbers(self.mesh).items()
        }
        return numbers | {"world": np.zeros(self.mesh.ranks, np.int64)}

    def _mirrored(self, kind: str, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Replicas of a part of the model that lies on two stages are the ranks of both."""
        if self.mesh.copies == 1 or kind not in ("data", "expert_data"):
            return numbers
        middle = self.mesh.pipeline // 2
        return np.concatenate([numbers[:middle], numbers[:middle][::-1]])

    def _of_ranks(self, by_stage: NDArray[np.int64]) -> list[int]:
        """What is known by stage and place in it, by rank."""
        found = np.empty(self.mesh.ranks, np.int64)
        found[ranks_of_stages(self.mesh)] = by_stage
        return found.tolist()


def layout_of(parallel: Mapping[str, Any], ranks: int, microbatches: int, where: str) -> RunLayout:
    """The layout of `ranks` ranks under a trainer's section `parallel`; `where` names the file.

    Raises `UsageError` where the section describes no layout.
    """
    try:
        section = _SECTION.validate_python(dict(parallel))
        schedule = _schedule(section.schedule)
        for obstacle in schedule.problems(section.pipeline, section.virtual, microbatches):
            raise _bad_header(where, f"its schedule cannot have run: {obstacle.message}")
        mesh = Mesh(
            tensor=1,
            expert=section.expert,
            data=ranks // section.pipeline,
            pipeline=section.pipeline,
            gpus_per_node=ranks,
            order=section.order,
            copies=schedule.chunk_map(section.pipeline, section.virtual).copies,
        )
    except (ValidationError, KeyError) as error:
        raise _bad_header(where, f"invalid section `parallel`: {_reason(error)}") from None
    if mesh.ranks != ranks or mesh.stage_ranks % mesh.expert:
        degrees = f"pipeline {mesh.pipeline} and expert {mesh.expert}"
        raise _bad_header(where, f"{ranks} ranks cannot be laid out with {degrees}")
    if sorted(mesh.order) != sorted(_ORDER) or not stages_agree(mesh):
        raise _bad_header(where, f"the axis order {list(mesh.order)} does not place every rank")
    return RunLayout(mesh, schedule, section.virtual)


def _schedule(written: str | dict[str, Any]) -> Schedule:
    """The schedule of a name, or of a section with its settings."""
    section = {"kind": written} if isinstance(written, str) else written
    member = members("twin.schedules", Schedule)[section.get("kind", "")]
    found = member.model_validate(section)
    assert isinstance(found, Schedule)
    return found


def _reason(error: ValidationError | KeyError) -> str:
    if isinstance(error, KeyError):
        return f"there is no schedule {error.args[0]!r}"
    first = error.errors()[0]
    return f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}"


def _bad_header(where: str, message: str) -> UsageError:
    return UsageError([Problem("TW333", where, message, "a trainer did not write this header")])


TIMELINE: Final = "timeline"
"""The folder in a run's folder."""
_FILE: Final = re.compile(r"rank-(\d{5})\.jsonl")


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What all ranks of a run wrote down."""

    folder: Path
    layout: RunLayout
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


def runs_in(folder: Path) -> tuple[Path, ...]:
    """The subfolders that are runs with a timeline, the newest first."""
    try:
        runs = [path for path in folder.iterdir() if path.is_dir() and is_run(path)]
        return tuple(sorted(runs, key=lambda path: (-_changed(path), path.name)))
    except OSError:
        return ()


def stamp(folder: Path) -> int:
    """Changes when a rank writes more."""
    files = _files(_timeline(folder)).values()
    return hash(tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files))


def read(path: str | Path) -> MeasuredRun:
    """The run in a folder.

    Raises `UsageError` where there is none, a file of it says nothing sound, ranks are missing or
    do not belong together, or no step was finished by all of them.
    """
    folder = Path(path)
    timeline = _timeline(folder)
    files = _files(timeline)
    if not files:
        missing = not folder.is_dir()
        message = f"there is no folder `{folder}`" if missing else f"`{folder}` holds no timeline"
        fix = f"a run's folder contains `{TIMELINE}/rank-00000.jsonl`"
        raise UsageError([Problem("TW330", "", message, fix)])
    try:
        known = {number: read_rank(file) for number, file in files.items()}
    except OSError as error:
        message = f"`{error.filename}` cannot be read: {error.strerror}"
        raise UsageError([Problem("TW330", "", message)]) from None
    ranks = _together(known, files)
    header = ranks[0].header
    laid = layout_of(header.parallel, header.ranks, header.microbatches, str(files[0]))
    stages = [rank.header.stage for rank in ranks]
    if tuple(stages) != laid.stage:
        message = f"its ranks are on stages {stages}, and their layout has {[*laid.stage]}"
        raise _inconsistent(message, files[0])
    finished = sorted(set[int].intersection(*(set(rank.steps) for rank in ranks)))
    place = timeline.parent if folder.name == TIMELINE else folder
    run = MeasuredRun(place, laid, ranks, tuple(finished))
    _check(run, files)
    return run


def _timeline(folder: Path) -> Path:
    inside = folder / TIMELINE
    return inside if inside.is_dir() else folder


def _files(timeline: Path) -> dict[int, Path]:
    """The files of ranks, by rank."""
    try:
        names = [(_FILE.fullmatch(path.name), path) for path in timeline.iterdir()]
    except OSError:
        return {}
    return dict(sorted((int(name[1]), path) for name, path in names if name))


def _changed(run: Path) -> int:
    return max(path.stat().st_mtime_ns for path in _files(_timeline(run)).values())


def _together(known: dict[int, Rank], files: dict[int, Path]) -> tuple[Rank, ...]:
    """The ranks of the newest layout, in order; those of an earlier, larger one are left out."""
    first = min(known)
    header = known.get(0, known[first]).header
    missing = [number for number in range(header.ranks) if number not in known]
    if missing:
        listed = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        message = f"the run has {header.ranks} ranks; there is no timeline of rank {listed}"
        raise _inconsistent(message, files[first], "copy the files of all machines into one folder")
    for number in range(header.ranks):
        other = known[number].header
        if other.rank != number:
            raise _inconsistent(f"this file states that it is of rank {other.rank}", files[number])
        if other.layout != header.layout:
            message = f"rank {number} ran another model or layout than rank 0"
            raise _inconsistent(message, files[number], "leave the files of one run in the folder")
    return tuple(known[number] for number in range(header.ranks))


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
            message = f"rank {late} began step {step} after another had ended it"
            fix = "ranks must share one clock: take those of one machine"
            raise UsageError([Problem("TW336", "", message, fix, Origin(str(files[late])))])


def _inconsistent(message: str, file: Path, fix: str = "") -> UsageError:
    return UsageError([Problem("TW333", str(file), message, fix)])
