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

from twin.errors import Problem, ScenarioError
from twin.explore.study.variants import Document, document
from twin.explore.sweep.outcome import Outcome, Way, impossible
from twin.explore.sweep.points import Point
from twin.loading import load_any
from twin.loading.catalog import SLOTS
from twin.loading.load import UNIONS
from twin.scenario import Scenario

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
class Source:
    """The scenario that is varied, as a command names it."""

    path: str
    sets: tuple[str, ...] = ()

    def load(self, values: Values) -> Scenario:
        """The scenario under some values. Raises `ScenarioError` where it is invalid."""
        over = [f"{path}={json.dumps(value)}" for path, value in values.items()]
        loaded = load_any(self.path, [*self.sets, *over])
        assert isinstance(loaded, Scenario)
        return loaded


@dataclass(slots=True)
class Maker:
    """Makes points; remembers the bases that were loaded."""

    source: Source
    fidelity: Way = "fast"
    _bases: dict[str, Document | Outcome] = field(default_factory=dict[str, Document | Outcome])

    def point(self, values: Values) -> Point | Outcome:
        """The point with these values; an outcome where no scenario has them."""
        whole = {path: value for path, value in values.items() if _asks_the_loader(path, value)}
        name = json.dumps(whole)
        if name not in self._bases:
            self._bases[name] = self._base(whole)
        base = self._bases[name]
        if isinstance(base, Outcome):
            # What is wrong with these values alone may be right with the plain ones.
            other = self._base(values) if len(values) > len(whole) else base
            return other if isinstance(other, Outcome) else Point(other, {}, self.fidelity)
        plain = {path: value for path, value in values.items() if path not in whole}
        return Point(base, plain, self.fidelity)

    def _base(self, values: Values) -> Document | Outcome:
        try:
            found = document(self.source.load(values))
        except ScenarioError as error:
            return impossible(error.problems[0], self.fidelity)
        found.pop("sweep", None)
        return found


def wrong_values(source: Source, grid: Grid) -> dict[tuple[str, ...], Problem]:
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


def _right_somewhere(source: Source, grid: Grid, value: tuple[str, Any]) -> bool:
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


def _wrong(source: Source, values: Values) -> Problem | None:
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
