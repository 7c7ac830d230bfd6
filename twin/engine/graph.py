"""The operations of a step and what each waits for, in arrays: what a player plays.

Operations lie role by role, and of a role in the order in which they are issued. Edges and members
of rendezvous are rows of ragged tables (compressed sparse rows), so that 30 million operations are
a few gigabytes and no objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.engine.link_map import Flow, Path, Route, Wiring
from twin.engine.program import Step

NONE: Final = -1

Indices: TypeAlias = NDArray[np.int32]
Bundle: TypeAlias = tuple[tuple[float, int], ...]
"""Flows, as bytes and the number of their path."""


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows of different lengths: row i is `items[first[i] : first[i + 1]]`."""

    first: NDArray[np.int64]
    items: Indices

    @staticmethod
    def of(rows: Sequence[Sequence[int]]) -> Ragged:
        """From rows as lists."""
        first = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=first[1:])
        return Ragged(first, np.array([one for row in rows for one in row], np.int32))

    def row(self, index: int) -> list[int]:
        """One row as a list."""
        return self.items[self.first[index] : self.first[index + 1]].tolist()

    def spread(
        self, rows: NDArray[np.integer]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The items of some rows, one after the other: of which of these rows each is, its place
        in `items`, and its place in its row."""
        lengths = np.diff(self.first)[rows]
        owner = np.repeat(np.arange(len(rows)), lengths)
        place = np.arange(len(owner)) - row_starts(lengths)[owner]
        return owner, self.first[rows][owner] + place, place

    def lists(self) -> list[list[int]]:
        """All rows as lists."""
        first: list[int] = self.first.tolist()
        items: list[int] = self.items.tolist()
        return [items[a:b] for a, b in pairwise(first)]


@dataclass(slots=True)
class Bundles:
    """What operations send: bundles of flows, and the paths that these take."""

    flows: list[Bundle] = field(default_factory=list[Bundle])
    paths: dict[Path, int] = field(default_factory=dict[Path, int])

    def add(self, flows: Sequence[Flow]) -> int:
        """The number of a new bundle; `NONE` where nothing is sent."""
        if not flows:
            return NONE
        self.flows.append(tuple([(size, self._path(route)) for size, route in flows]))
        return len(self.flows) - 1

    def _path(self, route: Route) -> int:
        path = tuple([link for link, _ in route]), tuple([weight for _, weight in route])
        return self.paths.setdefault(path, len(self.paths))


@dataclass(slots=True)
class Graph:
    """Operations in columns."""

    role: Indices
    stream: Indices
    name: Indices
    """Index into `names`."""
    names: tuple[str, ...]
    chunk: Indices
    microbatch: Indices
    duration: NDArray[np.int64]
    sms: Indices
    """Held while the operation runs."""
    sm_bound: NDArray[np.float64]
    """Share of a kernel's time that SMs bound."""
    bundle: Indices
    """What it sends, an index into `bundles`; `NONE`: nothing."""
    bundles: Bundles
    after: Ragged
    """By operation, those that wait for it."""
    waits: Indices
    """How many each waits for."""
    group: Indices
    """Its rendezvous; `NONE`: it starts by itself."""
    members: Ragged
    """By rendezvous, the operations that start together."""
    marks: list[NDArray[np.int64]]
    """Per role: the first operation of each action, in order, and one past the last."""

    def __len__(self) -> int:
        return len(self.role)

    def of_role(self, role: int) -> slice:
        """A role's operations lie together."""
        begin, end = np.searchsorted(self.role, (role, role + 1))
        return slice(int(begin), int(end))

    def named(self, *names: str) -> NDArray[np.bool_]:
        """The operations with one of these names."""
        codes = [code for code, name in enumerate(self.names) if name in names]
        return np.isin(self.name, codes)


def row_starts(lengths: Iterable[int] | NDArray[np.integer]) -> NDArray[np.int64]:
    """Where rows of these lengths begin, and one past the last."""
    counts = np.asarray(lengths, np.int64)
    first = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    return first


class SmallGraph:
    """A graph of steps that are added one by one."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self.steps: list[Step] = []
        self.roles: list[int] = []
        self.bundle: list[int] = []
        self.bundles = Bundles()
        self.after: list[list[int]] = []
        self.waits: list[int] = []

    def add(self, step: Step, role: int, before: Iterable[int]) -> int:
        """Add a step of a role behind others; its position."""
        op, others = len(self.steps), {*before}
        self.steps.append(step)
        self.roles.append(role)
        sent = step.traffic and self.wiring.flows(step.traffic, role, slowed=step.slowed)
        self.bundle.append(self.bundles.add(sent or ()))
        self.after.append([])
        self.waits.append(len(others))
        for other in others:
            self.after[other].append(op)
        return op

    def made(self, members: Sequence[Sequence[int]] = ()) -> Graph:
        """The graph, with those that start together."""
        steps, size = self.steps, len(self.steps)
        names = {name: code for code, name in enumerate(dict.fromkeys(s.name for s in steps))}
        group, nothing = np.full(size, NONE, np.int32), np.full(size, NONE, np.int32)
        for number, ops in enumerate(members):
            group[ops] = number
        return Graph(
            role=np.array(self.roles, np.int32),
            stream=np.array([step.stream for step in steps], np.int32),
            name=np.array([names[step.name] for step in steps], np.int32),
            names=tuple(names),
            chunk=nothing,
            microbatch=nothing,
            duration=np.array([step.duration_ns for step in steps], np.int64),
            sms=np.array([step.sms for step in steps], np.int32),
            sm_bound=np.array([step.sm_bound for step in steps], np.float64),
            bundle=np.array(self.bundle, np.int32),
            bundles=self.bundles,
            after=Ragged.of(self.after),
            waits=np.array(self.waits, np.int32),
            group=group,
            members=Ragged.of(members),
            marks=[],
        )
