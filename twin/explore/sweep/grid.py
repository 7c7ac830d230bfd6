"""Axes and listed values to the points of a sweep.

Most values are put straight into the base's plain data, which takes well under a millisecond. A
value that only the loader understands (a catalog name, a section, a setting of an axis such as a
schedule) makes another base, loaded once for all points that share it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any, Final

from twin.answers.nearest import document
from twin.errors import FieldError, Origin, Problem, ScenarioError, UsageError
from twin.explore.sweep.points import PointFidelity, PointOutcome, SweepPoint, impossible
from twin.loading import load_any
from twin.loading.catalog import SLOTS
from twin.loading.load import UNIONS
from twin.loading.tree import Items, plain
from twin.loading.yaml_text import read_yaml
from twin.scenario import Root
from twin.spec.sweep import SweepSpec, check_path, read_range

Values = Mapping[str, Any]
"""Dotted path to a value, as `--set` takes it."""
_SEQUENCE: Final = ("train", "sequence")
"""Plain data has the batch in tokens; of one written in sequences the tokens follow from these."""
_TOGETHER: Final = "TW017"
"""The code of fields that contradict each other: wrong in this combination, not by themselves."""


@dataclass(frozen=True, slots=True)
class Grid:
    """What is varied."""

    axes: Mapping[str, tuple[Any, ...]]
    points: tuple[Values, ...] = ()

    @property
    def size(self) -> int:
        """How many points these are."""
        crossed = prod(len(values) for values in self.axes.values()) if self.axes else 0
        return crossed + len(self.points)

    def __iter__(self) -> Iterator[Values]:
        """Every combination of the axes, the last one fastest, then the points that are listed."""
        if self.axes:
            for values in product(*self.axes.values()):
                yield dict(zip(self.axes, values, strict=True))
        yield from self.points


@dataclass(frozen=True, slots=True)
class ScenarioSource:
    """The scenario that is varied, as a command names it."""

    path: str
    sets: tuple[str, ...] = ()

    def load(self, values: Values) -> Root:
        """The scenario under some values. Raises `ScenarioError` where it is invalid."""
        over = [f"{path}={json.dumps(value)}" for path, value in values.items()]
        return load_any(self.path, [*self.sets, *over])


@dataclass(slots=True)
class PointMaker:
    """Makes points; remembers the bases that were loaded."""

    source: ScenarioSource
    fidelity: PointFidelity = "events"
    _bases: dict[str, SweepPoint | PointOutcome] = field(
        default_factory=dict[str, SweepPoint | PointOutcome]
    )

    def point(self, values: Values) -> SweepPoint | PointOutcome:
        """The point with these values; an outcome where no scenario has them."""
        whole = {path: value for path, value in values.items() if _asks_the_loader(path, value)}
        name = json.dumps(whole)
        if name not in self._bases:
            self._bases[name] = self._base(whole)
        base = self._bases[name]
        if isinstance(base, PointOutcome):
            # What is wrong with these values alone may be right with the plain ones.
            return self._base(values) if len(values) > len(whole) else base
        plain = {path: value for path, value in values.items() if path not in whole}
        return replace(base, overrides=plain)

    def _base(self, values: Values) -> SweepPoint | PointOutcome:
        try:
            loaded = self.source.load(values)
        except ScenarioError as error:
            return impossible(error.problems[0], self.fidelity)
        plain = document(loaded, step=self.fidelity != "whole")
        return SweepPoint(plain, {}, self.fidelity, loaded.software_assumed)


def wrong_values(source: ScenarioSource, grid: Grid) -> dict[tuple[str, ...], Problem]:
    """What is wrong with single values, by their place, axis and number, or `points` and number:
    paths that no scenario has, and values that no field takes. What is only wrong together with
    others is left to the points. Where a value is wrong by itself, the first combination that has
    it decides: a setting of a schedule may belong to another than the base's."""
    found: dict[tuple[str, ...], Problem] = {}
    for path, values in grid.axes.items():
        for number, value in enumerate(values):
            problem = _wrong(source, {path: value})
            if problem is not None and not _right_somewhere(source, grid, (path, value)):
                found[path, str(number)] = problem
    for number, values in enumerate(grid.points):
        if (problem := _wrong(source, values)) is not None:
            found["points", str(number)] = problem
    return found


_MOST_TRIED: Final = 32
"""Combinations that are loaded before a value is called wrong."""


def _right_somewhere(source: ScenarioSource, grid: Grid, value: tuple[str, Any]) -> bool:
    """True where a combination of the axes that are no plain values allows this one."""
    path, wanted = value
    others = {
        other: values if any(_asks_the_loader(other, one) for one in values) else values[:1]
        for other, values in grid.axes.items()
    }
    combined = product(*({**others, path: (wanted,)}).values())
    for number, values in enumerate(combined):
        if number == _MOST_TRIED:
            return False
        if _wrong(source, dict(zip(others, values, strict=True))) is None:
            return True
    return False


def _wrong(source: ScenarioSource, values: Values) -> Problem | None:
    """The first problem that is not about a combination; None where there is none."""
    try:
        source.load(values)
    except ScenarioError as error:
        found = (problem for problem in error.problems if problem.code != _TOGETHER)
        problem = next(found, None)
        return problem and replace(problem, origin=None)
    return None


def _asks_the_loader(path: str, value: Any) -> bool:
    """True for a value that is more than plain data at a field of its own."""
    keys = tuple(path.split("."))
    special = (*SLOTS, *UNIONS, _SEQUENCE)
    return isinstance(value, dict) or any(_meet(keys, place) for place in special)


def _meet(keys: Sequence[str], place: Sequence[str]) -> bool:
    """True where one is, or lies inside, the other."""
    shorter = min(len(keys), len(place))
    return tuple(keys[:shorter]) == tuple(place[:shorter])


_OF_KEYS = ("TW005", "TW010")
"""Codes of what is wrong with a path, whatever its values."""
_FLAG = "--grid "
"""Shown before the argument, so that the caret stands under what was typed."""


@dataclass(frozen=True, slots=True)
class GridAxis:
    """The values of one field, each with the place where it was written."""

    path: str
    values: tuple[Any, ...]
    origins: tuple[Origin, ...]
    key: Origin
    """Of the path."""

    def place(self, problem: Problem, number: int) -> Origin:
        """Where what is wrong with the value of this number stands."""
        return self.key if problem.code in _OF_KEYS else self.origins[number]


def read_axes(arguments: Sequence[str]) -> tuple[GridAxis, ...]:
    """One axis per argument: `PATH=V1,V2`, where values are YAML, or a range. Raises `UsageError`
    with all arguments that are none."""
    problems: list[Problem] = []
    found = [_read_axis(argument, n, problems) for n, argument in enumerate(arguments, 1)]
    if problems:
        raise UsageError(problems)
    return tuple(axis for axis in found if axis is not None)


def grid_of(scenario: Root, axes: Sequence[GridAxis]) -> Grid:
    """The grid that a scenario asks for, and the axes of the command, which add to it, or take the
    place of one of the same field."""
    asked = getattr(scenario, "sweep", None) or SweepSpec()
    crossed = {**asked.grid, **{axis.path: axis.values for axis in axes}}
    return Grid(crossed, tuple(asked.points))


def check_values(
    source: ScenarioSource, scenario: Root, grid: Grid, axes: Sequence[GridAxis]
) -> None:
    """Raise what is wrong with single values, at their places: `UsageError` for those of the
    command, else `ScenarioError` for those of the file."""
    typed = {axis.path: axis for axis in axes}
    ours: list[Problem] = []
    of_file: list[Problem] = []
    for (path, number), problem in wrong_values(source, grid).items():
        if path in typed and path != "points":
            ours.append(replace(problem, origin=typed[path].place(problem, int(number))))
        else:
            place = f"sweep.points.{number}" if path == "points" else f"sweep.grid.{path}"
            (placed,) = scenario.locate([replace(problem, path=place)])
            of_file.append(replace(placed, path=problem.path))
    if ours:
        raise UsageError(dict.fromkeys(ours))
    if of_file:
        raise ScenarioError(dict.fromkeys(of_file))


def _read_axis(argument: str, number: int, problems: list[Problem]) -> GridAxis | None:
    whole = Origin("--grid", number, len(_FLAG) + 1, _FLAG + argument, len(argument))
    path, equals, text = (part.strip() for part in argument.partition("="))
    if not equals or not text:
        form = f"write `--grid {path or 'parallel.pipeline'}=8,16`, or `=4..32:x2`"
        problems.append(Problem("TW402", "", "an axis needs a path and values", form, whole))
        return None
    try:
        check_path(path)
        steps = read_range(text)
    except FieldError as error:
        problems.append(Problem(error.code, "", error.message, error.hint, whole))
        return None
    if steps is not None:
        return GridAxis(path, steps, (whole,) * len(steps), _key(whole, path))
    return _listed(path, argument, whole, problems)


def _listed(path: str, argument: str, whole: Origin, problems: list[Problem]) -> GridAxis | None:
    """An axis whose values are written one by one: a YAML list without its brackets."""
    begin = argument.index("=") + 1

    def locate(line: int, column: int, width: int) -> Origin:
        return whole.at(len(_FLAG) + begin + (0 if line else column), width)

    tree, found = read_yaml(f"[{argument[begin:]}]", locate)
    problems.extend(found)
    if found or not isinstance(tree, Items) or not tree.nodes:
        return None
    places = tuple(node.origin for node in tree.nodes)
    return GridAxis(path, tuple(plain(tree)), places, _key(whole, path))


def _key(whole: Origin, path: str) -> Origin:
    return whole.at(whole.column, len(path))
