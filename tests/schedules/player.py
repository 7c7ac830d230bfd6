"""A tiny player of orders, written against the meaning of a pipeline: of the twin only `Action`."""

from collections import deque

from twin.schedules import Action

Orders = tuple[tuple[Action, ...], ...]


class DeadlockError(Exception):
    """No stage can go on."""


def needs(action: Action, last_chunk: int) -> list[tuple[str, int, int]]:
    """What must have ended before an action starts: its neighbour in the chain of a micro-batch."""
    if action.kind == "F":
        return [("F", action.chunk - 1, action.microbatch)] if action.chunk else []
    own = ("F", action.chunk, action.microbatch)
    if action.chunk == last_chunk:
        return [own]
    return [own, ("B", action.chunk + 1, action.microbatch)]


def play(orders: Orders, chunks: int, forward: int = 1, backward: int = 1) -> int:
    """The length of the step when passes take these times and messages take none."""
    waiting = [deque(order) for order in orders]
    clock = [0] * len(orders)
    ended: dict[tuple[str, int, int], int] = {}
    while any(waiting):
        before = len(ended)
        for stage, queue in enumerate(waiting):
            while queue and all(need in ended for need in needs(queue[0], chunks - 1)):
                action = queue.popleft()
                ready = [ended[need] for need in needs(action, chunks - 1)]
                start = max([clock[stage], *ready])
                clock[stage] = start + (forward if action.kind == "F" else backward)
                ended[action.kind, action.chunk, action.microbatch] = clock[stage]
        if len(ended) == before:
            raise DeadlockError([queue[0] for queue in waiting if queue])
    return max(clock)


def most_in_flight(order: tuple[Action, ...]) -> int:
    """Most chunk forwards whose backward has not run yet."""
    alive = most = 0
    for action in order:
        alive += 1 if action.kind == "F" else -1
        most = max(most, alive)
    return most
