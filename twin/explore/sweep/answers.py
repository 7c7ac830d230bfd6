"""All points of a sweep, answered: what is kept is recalled, equal scenarios are played once, and
the rest goes to a pool."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from twin.answers.executors import Died, PoolChoice, play
from twin.answers.key import source_digest
from twin.explore.sweep.kept import keep, tidy
from twin.explore.sweep.outcome import Outcome, failed, impossible
from twin.explore.sweep.points import Point, answer_point, known_outcome, problem_of
from twin.loading import scenario_hash


@dataclass(frozen=True, slots=True)
class Counts:
    """How far a sweep is."""

    points: int
    """In all."""
    done: int = 0
    cached: int = 0
    """Of those done: recalled, or the same scenario as one that was played."""
    failed: int = 0
    """Of those done: not answered."""


Told = Callable[[Counts], None]


@dataclass(slots=True)
class _Course:
    """What is found out before anything is played."""

    play_unfit: bool
    folder: Path | None
    waiting: dict[tuple[str, str], list[int]] = field(
        default_factory=dict[tuple[str, str], list[int]]
    )
    """Places of the points to play, by hash and fidelity: equal scenarios share one."""

    def at_once(self, place: int, point: Point | Outcome) -> Outcome | None:
        """The outcome of a point that need not be played; None where it has to be."""
        if isinstance(point, Outcome):
            return point
        try:
            name = scenario_hash(point.scenario())
        except ValidationError as error:
            return impossible(problem_of(error), point.fidelity)
        same = self.waiting.get((name, point.fidelity))
        if same is not None:
            same.append(place)
            return None
        known = known_outcome(self.folder, name, point.fidelity, play_unfit=self.play_unfit)
        if known is None:
            self.waiting[name, point.fidelity] = [place]
        return known


def answer_points(
    points: Sequence[Point | Outcome],
    *,
    pool: PoolChoice,
    folder: Path | None,
    play_unfit: bool = True,
    progress: Told | None = None,
) -> Generator[tuple[int, Outcome]]:
    """What is said of each point, as (its place, outcome), in the order in which they are known:
    those that need no play first. `folder` is where outcomes are kept (`points_folder()`; None: not
    at all). What a killed process had finished is there when the points are asked for again.

    Raises `UsageError` where a cluster cannot be reached.
    """
    if folder is not None:
        tidy(folder)
    course, counts = _Course(play_unfit, folder), Counts(len(points))
    for place, point in enumerate(points):
        found = course.at_once(place, point)
        if found is not None:
            counts = _counted(counts, found)
            yield place, found
    if progress is not None:
        progress(counts)
    for place, outcome in _played(points, course, pool):
        counts = _counted(counts, outcome)
        if progress is not None:
            progress(counts)
        yield place, outcome


def _played(
    points: Sequence[Point | Outcome], course: _Course, pool: PoolChoice
) -> Iterator[tuple[int, Outcome]]:
    """The outcomes of points that have to be played, each at all its places."""
    places = list(course.waiting.items())
    tasks = [point for _, (first, *_) in places if isinstance(point := points[first], Point)]
    if not tasks:
        return
    # Workers of this machine keep what they have played at once; those of a cluster may have
    # another disk, so that what comes back from there is kept here.
    theirs = course.folder if pool.cluster is None else None
    function = partial(
        answer_point, folder=theirs, play_unfit=course.play_unfit, source=source_digest()
    )
    for index, result in play(function, tasks, pool=pool):
        (name, _), (first, *others) = places[index]
        if isinstance(result, Died):
            result = replace(failed(result.reason, tasks[index].fidelity), hash=name)  # noqa: PLW2901
        elif theirs is None and course.folder is not None and result.status != "failed":
            keep(course.folder, result)
        yield first, result
        yield from ((place, replace(result, cached=True)) for place in others)


def _counted(counts: Counts, outcome: Outcome) -> Counts:
    return replace(
        counts,
        done=counts.done + 1,
        cached=counts.cached + outcome.cached,
        failed=counts.failed + (outcome.status == "failed"),
    )
