"""Program to trace of an update: every operation on one clock, flows sharing links max-min fair."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from twin.engine.clock import Clock
from twin.engine.fluid import Fluid
from twin.kinds.weight_update.plan import STAGES, Link, Stage, UpdateProgram, UpdateTrace


def simulate(program: UpdateProgram) -> UpdateTrace:
    """Play an update."""
    player = _Player(program)
    player.run()
    critical = _critical(program, player.end)
    update_ns = max(player.end)
    carried = _carried(program)
    return UpdateTrace(
        start=tuple(player.start),
        end=tuple(player.end),
        critical=critical,
        update_ns=update_ns,
        breakdown_ns=_breakdown(program, player.end, critical),
        busy_ns=_busy(program, player.start, player.end),
        link_bytes={link: carried[link] / count for link, (count, _) in program.classes.items()},
        link_busy={
            link: carried[link] / (count * rate * update_ns) if update_ns else 0.0
            for link, (count, rate) in program.classes.items()
        },
        events=player.events,
    )


@dataclass(slots=True)
class _Player:
    program: UpdateProgram
    start: list[int] = field(init=False)
    end: list[int] = field(init=False)
    waits: list[int] = field(init=False)
    left: list[int] = field(init=False)
    followers: list[list[int]] = field(init=False)
    events: int = 0
    clock: Clock = field(default_factory=Clock)
    fluid: Fluid = field(init=False)

    def __post_init__(self) -> None:
        operations = self.program.operations
        self.start, self.end = ([0] * len(operations) for _ in (0, 1))
        self.waits = [len(set(one.after)) for one in operations]
        self.left = [len(one.flows) for one in operations]
        self.followers = [[] for _ in operations]
        for number, one in enumerate(operations):
            for before in set(one.after):
                self.followers[before].append(number)
        self.fluid = Fluid(self.clock, [*self.program.capacity], self._arrived)

    def run(self) -> None:
        """To the end of the last operation."""
        for number in [number for number, waits in enumerate(self.waits) if not waits]:
            self._begin(number)
        self.clock.play()

    def _begin(self, number: int) -> None:
        one = self.program.operations[number]
        self.start[number] = self.clock.nanoseconds
        if one.duration_ns or not one.flows:
            self.clock.call(one.duration_ns, self._elapsed, number)
        else:
            self._transfer(number)

    def _elapsed(self, number: int) -> None:
        self.events += 1
        if self.program.operations[number].flows:
            self._transfer(number)
        else:
            self._over(number)

    def _transfer(self, number: int) -> None:
        for flow in self.program.operations[number].flows:
            self.fluid.start(number, flow.bytes, flow.links)

    def _arrived(self, number: int) -> None:
        self.events += 1
        self.left[number] -= 1
        if not self.left[number]:
            self._over(number)

    def _over(self, number: int) -> None:
        self.end[number] = self.clock.nanoseconds
        for follower in self.followers[number]:
            self.waits[follower] -= 1
            if not self.waits[follower]:
                self._begin(follower)


def _critical(program: UpdateProgram, end: Sequence[int]) -> tuple[int, ...]:
    """The operations that made the update as long as it is, in the order of time: each started
    when the one before was over."""
    found: list[int] = []
    at: int | None = max(range(len(end)), key=lambda number: (end[number], number))
    while at is not None:
        found.append(at)
        at = max(program.operations[at].after, key=lambda number: end[number], default=None)
    return tuple(reversed(found))


def _breakdown(
    program: UpdateProgram, end: Sequence[int], critical: Sequence[int]
) -> dict[Stage, int]:
    spent: dict[Stage, int] = dict.fromkeys(STAGES, 0)
    before = 0
    for number in critical:
        stage = program.operations[number].stage
        if stage is not None:
            spent[stage] += end[number] - before
            before = end[number]
    return spent


def _busy(program: UpdateProgram, start: Sequence[int], end: Sequence[int]) -> dict[Stage, int]:
    """Nanoseconds in which at least one operation of a stage ran."""
    spans: defaultdict[Stage, list[tuple[int, int]]] = defaultdict(list)
    for one, *span in zip(program.operations, start, end, strict=True):
        if one.stage is not None:
            spans[one.stage].append((span[0], span[1]))
    return {stage: _covered(sorted(spans[stage])) for stage in STAGES}


def _covered(spans: Sequence[tuple[int, int]]) -> int:
    """Length of the union of sorted spans."""
    total = reached = 0
    for start, end in spans:
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _carried(program: UpdateProgram) -> dict[Link, float]:
    total: dict[Link, float] = dict.fromkeys(program.classes, 0.0)
    for one in program.operations:
        for link, size in one.carried.items():
            total[link] = total.get(link, 0.0) + size
    return total
