"""NCCL's rule for messages, on paper: each pair of ranks and process group has one stream on each
side, which runs sends and receives in the order in which they were given. A send and its receive
run when both stand first.

Computing takes no time. A receive is given when the one before it on its lane is over, as the
trainer's lanes do; so receives stand before sends wherever they can, which is the worst order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from reference.parallel.messages import Direction, Key, Route
from twin.schedules.base import Action, ChunkMap

Share = Callable[[Direction, int, int], object]
"""What names the process group of a message: direction, sender and receiver."""
Lane = tuple[Direction, int, int]
"""Direction, sender, receiver."""
Given = tuple[bool, Lane]
"""Whether it is a send, and of which lane."""


def stuck(orders: Sequence[Sequence[Action]], chunk_map: ChunkMap, share: Share) -> list[int]:
    """Stages that never end."""
    return _Step(orders, chunk_map, share).run()


class _Step:
    """A step under way."""

    def __init__(
        self, orders: Sequence[Sequence[Action]], chunk_map: ChunkMap, share: Share
    ) -> None:
        self.orders, self.chunk_map, self.share = orders, chunk_map, share
        self.done = [0] * len(orders)
        self.arrived: set[tuple[int, Key]] = set()
        self.busy: set[Given] = set()
        self.lanes: dict[Given, deque[Key]] = defaultdict(deque)
        """Messages that wait to be given to a stream."""
        self.streams: dict[tuple[int, int, object], deque[Given]] = defaultdict(deque)
        """By stage, the other one, and the group."""
        for stage, order in enumerate(orders):
            for action in order:
                self.post(stage, action, send=False)

    def run(self) -> list[int]:
        """Until nothing moves any more."""
        while True:
            self.give()
            if not (self.move() or self.act()):
                return [s for s, order in enumerate(self.orders) if self.done[s] < len(order)]

    def post(self, stage: int, action: Action, *, send: bool) -> None:
        """What an action sends to another stage, on the lane of its sends or of its receives."""
        target = Route(stage, (), self.chunk_map, {}).target(action)
        if target is not None and target[1] != stage:
            self.lanes[send, (target[0][0], stage, target[1])].append(target[0])

    def give(self) -> None:
        """Each lane's next message to its stream, receives first."""
        for given in sorted(self.lanes, key=lambda one: one[0]):
            send, lane = given
            here, there = (lane[1], lane[2]) if send else (lane[2], lane[1])
            if self.lanes[given] and given not in self.busy:
                self.busy.add(given)
                self.streams[here, there, self.share(*lane)].append(given)

    def move(self) -> bool:
        """Run one message whose both sides stand first."""
        for (here, there, group), queue in self.streams.items():
            other = self.streams.get((there, here, group))
            if queue and other and queue[0][0] and other[0] == (False, queue[0][1]):
                sent, received = queue.popleft(), other.popleft()
                self.busy -= {sent, received}
                key = self.lanes[sent].popleft()
                assert key == self.lanes[received].popleft(), "messages come as expected"
                self.arrived.add((sent[1][2], key))
                return True
        return False

    def act(self) -> bool:
        """Run one action whose message is here."""
        for stage, order in enumerate(self.orders):
            if self.done[stage] < len(order) and self.can(stage, order[self.done[stage]]):
                self.post(stage, order[self.done[stage]], send=True)
                self.done[stage] += 1
                return True
        return False

    def can(self, stage: int, action: Action) -> bool:
        """Whether an action needs no message from another stage, or has it."""
        if action.kind == "W":
            return True
        forward = action.kind == "F"
        source = (self.chunk_map.before if forward else self.chunk_map.after)[action.chunk]
        if source is None or self.chunk_map.stage_of[source] == stage:
            return True
        way: Direction = "forward" if forward else "backward"
        return (stage, (way, action.chunk, action.microbatch)) in self.arrived
