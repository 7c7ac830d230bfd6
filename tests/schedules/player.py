"""A tiny player of orders, written against the meaning of a pipeline: of the twin only `Action` and
`Schedule`."""

from collections import deque
from dataclasses import dataclass
from fractions import Fraction

from twin.schedules.base import Action, Schedule

Orders = tuple[tuple[Action, ...], ...]
Done = tuple[str, int, int]


class DeadlockError(Exception):
    """No stage can go on."""


@dataclass(frozen=True)
class Times:
    """How long passes take; a whole backward is its two halves, `pair` a forward beside one, and
    `message` what is between the passes of two stages."""

    forward: int = 1
    inputs: int = 1
    weights: int = 1
    pair: int | None = None
    message: int = 0

    @property
    def backward(self) -> int:
        return self.inputs + self.weights

    def together(self, actions: list[Action]) -> int:
        """Of one action, or of a pair."""
        if len(actions) == 2 and actions[1].kind == "B" and self.pair is not None:
            return self.pair
        each = {"F": self.forward, "B": self.backward, "I": self.inputs, "W": self.weights}
        return sum(each[action.kind] for action in actions)


@dataclass(frozen=True)
class Step:
    """When the step ends, how long each stage was busy, and how long from its first pass to the
    end of its last."""

    length: int
    busy: tuple[int, ...]
    own: tuple[int, ...]

    @property
    def idle(self) -> list[int]:
        return [self.length - busy for busy in self.busy]

    @property
    def gaps(self) -> list[int]:
        """Idle time between a stage's first pass and its last."""
        return [own - busy for own, busy in zip(self.own, self.busy, strict=True)]

    def bubble(self, stage: int = 0) -> Fraction:
        return Fraction(self.idle[stage], self.length)


def needs(action: Action, schedule: Schedule, stages: int, chunks: int) -> list[Done]:
    """What must have ended before an action starts: its neighbour in the chain of a micro-batch."""
    chunk_map, batch = schedule.chunk_map(stages, chunks), action.microbatch
    if action.kind == "F":
        before = chunk_map.before[action.chunk]
        return [] if before is None else [("F", before, batch)]
    if action.kind == "W":
        return [("I", action.chunk, batch)]
    after = chunk_map.after[action.chunk]
    own = ("F", action.chunk, batch)
    return [own] if after is None else [own, ("I", after, batch)]


def play(
    schedule: Schedule,
    shape: tuple[int, int, int],
    times: Times | None = None,
    orders: Orders | None = None,
) -> Step:
    """Play a step; both halves of a pair wait for what each needs."""
    stages, chunks, _ = shape
    stage_of = schedule.chunk_map(stages, chunks).stage_of
    times = times or Times()
    waiting = [deque(order) for order in orders or schedule.order(*shape)]
    clock, busy, begun = [0] * stages, [0] * stages, [-1] * stages
    ended: dict[Done, int] = {}
    while any(waiting):
        before = len(ended)
        for stage, queue in enumerate(waiting):
            while queue:
                actions = [queue[0], queue[1]] if queue[0].paired else [queue[0]]
                wanted = [need for a in actions for need in needs(a, schedule, stages, chunks)]
                if not all(need in ended for need in wanted):
                    break
                length = times.together(actions)
                there = [ended[n] + times.message * (stage_of[n[1]] != stage) for n in wanted]
                start = max([clock[stage], *there])
                begun[stage] = start if begun[stage] < 0 else begun[stage]
                clock[stage] = start + length
                busy[stage] += length
                for action in actions:
                    queue.popleft()
                    # A whole backward is its input's half, too.
                    kind = "I" if action.kind == "B" else action.kind
                    ended[kind, action.chunk, action.microbatch] = clock[stage]
        if len(ended) == before:
            raise DeadlockError([queue[0] for queue in waiting if queue])
    own = tuple(end - begin for begin, end in zip(begun, clock, strict=True))
    return Step(max(clock), tuple(busy), own)


def most_in_flight(order: tuple[Action, ...]) -> int:
    """Most chunk forwards whose weights' gradient has not been computed yet."""
    alive = most = 0
    for action in order:
        alive += {"F": 1, "B": -1, "I": 0, "W": -1}[action.kind]
        most = max(most, alive)
    return most
