"""Templates in columns, and the arrays of all that a step is made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.collectives.traffic import Traffic
from twin.engine.graph import Indices, Ragged, row_starts
from twin.engine.program import HOST, Template, last_steps, roots
from twin.schedules.base import Pass

ALONE: Final = "self"
"""The group of a step that waits for nobody else."""
Passes: TypeAlias = tuple[tuple[Pass, int, bool], ...]
"""A pass, its chunk, and whether it is the chunk's first forward or last backward; or the two of a
pair."""


@dataclass(frozen=True, slots=True)
class Columns:
    """A template, ready to be issued many times. `number` is its place in the table."""

    number: int
    size: int
    stream: tuple[int, ...]
    roots: tuple[int, ...]
    """Steps that wait for nothing in the template but their stream, but for the host's."""
    issue: int | None
    """The first step of the host."""
    first: tuple[tuple[int, int], ...]
    """Of each stream its first step."""
    last: tuple[tuple[int, int], ...]

    @staticmethod
    def of(template: Template, number: int) -> Columns:
        """Those of a template."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for place, step in enumerate(template):
            first.setdefault(step.stream, place)
            last[step.stream] = place
        return Columns(
            number=number,
            size=len(template),
            stream=tuple(step.stream for step in template),
            roots=roots(template),
            issue=next((i for i, step in enumerate(template) if step.stream == HOST), None),
            first=tuple(first.items()),
            last=tuple(last.items()),
        )


def dependents(template: Template) -> list[list[int]]:
    """By step, how many steps later those come that wait for it, their stream's next included."""
    found: list[list[int]] = [[] for _ in template]
    last: dict[int, int] = {}
    for place, step in enumerate(template):
        before = {*step.after}
        if step.stream in last:
            before.add(last[step.stream])
        last[step.stream] = place
        for one in before:
            found[one].append(place - one)
    return found


class Table:
    """The steps of many templates, one after the other."""

    def __init__(self) -> None:
        self.columns: list[Columns] = []
        self.templates: list[Template] = []
        self._known: dict[int, Columns] = {}

    def add(self, template: Template) -> Columns:
        """A template's columns. It is kept, so that its identity names it."""
        if id(template) not in self._known:
            self._known[id(template)] = Columns.of(template, len(self.columns))
            self.columns.append(self._known[id(template)])
            self.templates.append(template)
        return self._known[id(template)]

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Steps of each template."""
        return np.array([one.size for one in self.columns], np.int64)

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """Where each template begins."""
        return row_starts(self.sizes)

    @cached_property
    def streams(self) -> Ragged:
        """By template, the streams that it has steps on."""
        return Ragged.of([[stream for stream, _ in one.first] for one in self.columns])

    @cached_property
    def reach(self) -> NDArray[np.int64]:
        """Of each of these streams, the first step and the last."""
        pairs = ((one.first, one.last) for one in self.columns)
        reach = [
            (a, b) for first, last in pairs for (_, a), (_, b) in zip(first, last, strict=True)
        ]
        return np.array(reach, np.int64).reshape(-1, 2)

    @cached_property
    def steps(self) -> Steps:
        """The steps of all of them."""
        return Steps.of(tuple(step for template in self.templates for step in template), self)


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps in columns."""

    stream: Indices
    name: Indices
    names: tuple[str, ...]
    duration: NDArray[np.int64]
    sms: Indices
    sm_bound: NDArray[np.float64]
    group: Indices
    """Index into `groups`, -1: alone."""
    groups: tuple[str, ...]
    after: Ragged
    """How many steps later those come that wait for it."""
    traffic: dict[int, tuple[Traffic, bool]]
    """Of those that send: what, and whether kernels slow it."""
    rows: dict[int, tuple[tuple[int, float], ...]]
    """Of those that depend on rows of experts: as of a step."""

    @staticmethod
    def of(steps: Template, table: Table) -> Steps:
        """Those of a table."""
        names = {name: code for code, name in enumerate(dict.fromkeys(s.name for s in steps))}
        groups = {
            name: code
            for code, name in enumerate(dict.fromkeys(s.group for s in steps if s.group != ALONE))
        }
        return Steps(
            stream=np.array([step.stream for step in steps], np.int32),
            name=np.array([names[step.name] for step in steps], np.int32),
            names=tuple(names),
            duration=np.array([step.duration_ns for step in steps], np.int64),
            sms=np.array([step.sms for step in steps], np.int32),
            sm_bound=np.array([step.sm_bound for step in steps], np.float64),
            group=np.array([groups.get(step.group, -1) for step in steps], np.int32),
            groups=tuple(groups),
            after=Ragged.of([row for one in table.templates for row in dependents(one)]),
            traffic={
                place: (step.traffic, step.slowed)
                for place, step in enumerate(steps)
                if step.traffic
            },
            rows={place: step.rows for place, step in enumerate(steps) if step.rows},
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """A pass or a pair: columns, the pass of each step, and of each pass its roots, the step that
    ends its result, and its last, which may be a reduction behind that."""

    columns: Columns
    kinds: int
    """Whose each step is: the number of a row of `Layout.kinds`."""
    roots: tuple[tuple[int, ...], ...]
    begin: int
    """The first of them."""
    results: tuple[int, ...]
    ends: tuple[int, ...]

    @staticmethod
    def of(columns: Columns, lanes: tuple[int, ...], kinds: int) -> Turn:
        """A turn whose steps are of these passes."""
        every = range(max(lanes) + 1)
        begins = tuple(tuple(i for i in columns.roots if lanes[i] == lane) for lane in every)
        begin = min(roots[0] for roots in begins)
        return Turn(columns, kinds, begins, begin, *last_steps(columns.stream, lanes))
