"""Activations of one role on their way to the host and back, along the longest path.

What is under way when a turn starts, and what the turn sets off, share its links: the turn is
played by events on a role of its own beside them, and lasts what it lasts so. What is left of a
copy is counted in parts, so that a role is in one of a few states between its turns, and each turn
in each state is played once. Nobody but the role itself waits for its copies, so turns need not be
taken in the order of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from twin.engine.crowd import PARTS, Crowd, remaining, whole
from twin.engine.program import COMPUTE, FROM_HOST, TO_HOST, Program, Step
from twin.engine.shapes import NO_PASS, Record, Shape, alone_ns
from twin.engine.turns import Passes


@dataclass(frozen=True, slots=True)
class Moving:
    """A copy that is under way or queued: so many parts are left of it, and it starts and ends so
    many nanoseconds after the last kernel if nothing else starts. `older`: a forward has come after
    the one that made it; or a backward, with which one started that comes back."""

    step: Step
    parts: int
    older: bool
    start: int
    end: int


@dataclass(slots=True, eq=False)
class State:
    """What is under way when a turn's last kernel ends."""

    copies: tuple[Moving, ...] = ()
    forward: int = field(init=False)
    """Nanoseconds until the next forward may start, or backward."""
    backward: int = field(init=False)
    hold: int = field(init=False)
    """The longer of both."""
    over: int = field(init=False)
    """Nanoseconds until all is over."""
    turns: dict[Crowd, tuple[Shape, State]] = field(
        default_factory=dict[Crowd, "tuple[Shape, State]"]
    )
    """Of each turn its shape, and the state that it leaves."""
    later: dict[int, State] = field(default_factory=dict[int, "State"])
    """After a wait of so many grains."""

    def __post_init__(self) -> None:
        """Look up who waits how long."""
        self.forward = self._until(TO_HOST)
        self.backward = self._until(FROM_HOST)
        self.hold = max(self.forward, self.backward)
        self.over = max((one.end for one in self.copies), default=0)

    def _until(self, stream: int) -> int:
        ends = (one.end for one in self.copies if one.step.stream == stream and one.older)
        return max(ends, default=0)


class States:
    """The states that a Program's roles may be in."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.begin = State()
        """Nothing is under way."""
        self._known: dict[tuple[tuple[int, int, bool], ...], State] = {(): self.begin}
        self._grain = 0

    def after(self, state: State, wait: int) -> State:
        """What is left of a state after a wait."""
        grains = wait // self._grain
        if grains == 0:
            return state
        if grains not in state.later:
            state.later[grains] = self._state(state.copies, wait)
        return state.later[grains]

    def played(self, state: State, crowd: Crowd) -> tuple[Shape, State]:
        """The shape of a turn in a state, and the state in which it leaves its role."""
        left = tuple((one.step, one.parts, ()) for one in state.copies)
        meeting = crowd.after(left, self.program)
        own = sum(lane != NO_PASS for lane in crowd.lanes)
        shape = meeting.shape(crowd, own, self.program)
        times = zip(crowd.steps, meeting.own, strict=True)
        over = max(end for step, (_, end) in times if step.stream == COMPUTE)
        older = {TO_HOST: "F" in crowd.kinds, FROM_HOST: bool(crowd.kinds & {"B", "I"})}
        copies = [
            Moving(one.step, one.parts, one.older or older[one.step.stream], start, end)
            for one, (start, end) in zip(state.copies, meeting.late, strict=True)
        ]
        made = zip(crowd.under_way[own:], meeting.own[own:], strict=True)
        copies += [Moving(step, PARTS, False, start, end) for step, (start, end) in made]
        return shape, self._state(copies, over)

    def _state(self, copies: Iterable[Moving], now: int) -> State:
        """The state so long after the time from which copies are counted."""
        left = tuple(
            Moving(
                one.step,
                whole(remaining(one.parts, one.start, one.end, now)),
                one.older,
                max(0, one.start - now),
                one.end - now,
            )
            for one in copies
            if one.end > now
        )
        key = tuple((id(one.step), one.parts, one.older) for one in left)
        if key not in self._known:
            self._known[key] = State(left)
            lengths = (alone_ns(one.step, self.program.capacity) for one in left)
            self._grain = self._grain or max(1, max(lengths) // PARTS)
        return self._known[key]


class Copying:
    """The copies of one role, turn by turn."""

    def __init__(self, states: States, crowds: Sequence[Crowd], order: Sequence[int]) -> None:
        self.states, self.crowds = states, crowds
        """Turns that there are."""
        self.order, self.place = order, 0
        self.state = states.begin

    def held(
        self, passes: Passes, arrivals: Sequence[Record], idle: int, role: int
    ) -> list[Record]:
        """What passes wait for, after the kernels before them, which ended at `idle`."""
        state, found = self.state, list[Record]()
        for (kind, _), arrival in zip(passes, arrivals, strict=True):
            until = 0 if kind == "W" else state.forward if kind == "F" else state.backward
            if idle + until > arrival[0] and until:
                stream = TO_HOST if kind == "F" else FROM_HOST
                found.append((idle + until, idle, idle, stream, role, None))
            else:
                found.append(arrival)
        return found

    def take(self, wait: int) -> Shape:
        """The shape of the next turn, which starts so long after the kernels before it."""
        crowd = self.crowds[self.order[self.place]]
        self.place += 1
        state = self.states.after(self.state, wait) if wait and self.state.copies else self.state
        if crowd not in state.turns:
            state.turns[crowd] = self.states.played(state, crowd)
        shape, self.state = state.turns[crowd]
        return shape
