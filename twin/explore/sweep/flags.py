"""`--grid PATH=VALUES` to the axes of a grid, with the place of every value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from twin.errors import FieldError, Origin, Problem, ScenarioError, UsageError
from twin.explore.sweep.grid import Grid, Source, wrong_values
from twin.loading.tree import Items, plain
from twin.loading.yaml_text import read_yaml
from twin.scenario import Scenario
from twin.spec.sweep import SweepSpec, check_path, read_range

_OF_KEYS = ("TW005", "TW010")
"""Codes of what is wrong with a path, whatever its values."""
_FLAG = "--grid "
"""Shown before the argument, so that the caret stands under what was typed."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The values of one field, each with the place where it was written."""

    path: str
    values: tuple[Any, ...]
    origins: tuple[Origin, ...]
    key: Origin
    """Of the path."""

    def place(self, problem: Problem, number: int) -> Origin:
        """Where what is wrong with the value of this number stands."""
        return self.key if problem.code in _OF_KEYS else self.origins[number]


def read_axes(arguments: Sequence[str]) -> tuple[Axis, ...]:
    """One axis per argument: `PATH=V1,V2`, where values are YAML, or a range. Raises `UsageError`
    with all arguments that are none."""
    problems: list[Problem] = []
    found = [_read_axis(argument, n, problems) for n, argument in enumerate(arguments, 1)]
    if problems:
        raise UsageError(problems)
    return tuple(axis for axis in found if axis is not None)


def grid_of(scenario: Scenario, axes: Sequence[Axis]) -> Grid:
    """The grid that a scenario asks for, and the axes of the command, which add to it, or take the
    place of one of the same field."""
    asked = scenario.sweep or SweepSpec()
    crossed = {**asked.grid, **{axis.path: axis.values for axis in axes}}
    return Grid(crossed, tuple(asked.points))


def check_values(source: Source, scenario: Scenario, grid: Grid, axes: Sequence[Axis]) -> None:
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


def _read_axis(argument: str, number: int, problems: list[Problem]) -> Axis | None:
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
        return Axis(path, steps, (whole,) * len(steps), _key(whole, path))
    return _listed(path, argument, whole, problems)


def _listed(path: str, argument: str, whole: Origin, problems: list[Problem]) -> Axis | None:
    """An axis whose values are written one by one: a YAML list without its brackets."""
    begin = argument.index("=") + 1

    def locate(line: int, column: int, width: int) -> Origin:
        return whole.at(len(_FLAG) + begin + (0 if line else column), width)

    tree, found = read_yaml(f"[{argument[begin:]}]", locate)
    problems.extend(found)
    if found or not isinstance(tree, Items) or not tree.nodes:
        return None
    places = tuple(node.origin for node in tree.nodes)
    return Axis(path, tuple(plain(tree)), places, _key(whole, path))


def _key(whole: Origin, path: str) -> Origin:
    return whole.at(whole.column, len(path))
