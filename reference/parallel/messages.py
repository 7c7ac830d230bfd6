"""Activations and their gradients between the stages of a pipeline.

Every neighbour has a lane for each direction in, and one out (of two stages two): a thread that
sends or receives one message after the other. What arrives is known from the neighbour's own list
of actions, so the next receive always waits already; no order of sends and receives can deadlock,
since nobody who computes ever waits to send.

Each direction has a process group for messages to later stages and one for those to earlier ones.
gloo has one connection per pair and group, and moves bytes one way at a time on it. NCCL has one
stream per pair and group, which runs what it was given in order: there a send behind a receive
would wait for a peer whose send stands behind a receive, too.

On a GPU a lane has a stream of its own. What came is handed over with an event, for which the
taker's stream waits. Its memory is not used again before that stream is done with it.

Shapes: B batch, T tokens, D hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Condition, Event, Thread
from typing import Final, Literal, Self

import torch
import torch.distributed as dist
from torch import Tensor

from reference import streams
from reference.parallel.timeline import Stream, Tape, ended
from twin.schedules.base import Action, ChunkMap

Direction = Literal["forward", "backward"]
Channel = tuple[Direction, bool]
"""Direction, and whether the sender stands before the receiver: one process group each."""
CHANNELS: Final[tuple[Channel, ...]] = tuple(
    (direction, later) for direction in ("forward", "backward") for later in (True, False)
)
_Job = Callable[[], None]
Key = tuple[Direction, int, int]
"""Direction, the chunk that receives, micro-batch."""
Way = tuple[Direction, int]
"""Direction, and the other stage."""
_STREAM: Final[Mapping[Direction, Stream]] = {
    "forward": "send_forward",
    "backward": "send_backward",
}
_NAME: Final[Mapping[Direction, str]] = {"forward": "activations", "backward": "gradients"}


@dataclass(frozen=True, slots=True)
class Route:
    """What a stage of a pipeline needs to know of the others."""

    stage: int
    ranks: tuple[int, ...]
    """The rank of every stage of this pipeline."""
    chunk_map: ChunkMap
    handles: Mapping[Channel, dist.ProcessGroup | None]

    def handle(self, direction: Direction, sender: int, receiver: int) -> dist.ProcessGroup | None:
        """The process group of a message between two stages."""
        return self.handles[channel(direction, sender, receiver)]

    def between(self, sender: int, receiver: int) -> str:
        """The ranks of two stages, as the timeline tells those of a message."""
        return f"{self.ranks[sender]} > {self.ranks[receiver]}"

    def target(self, action: Action) -> tuple[Key, int] | None:
        """The message that an action sends, and the stage that gets it; None where there is none,
        or it stays here."""
        if action.kind == "W":
            return None
        forward = action.kind == "F"
        beside = self.chunk_map.after if forward else self.chunk_map.before
        chunk = beside[action.chunk]
        if chunk is None:
            return None
        key: Key = ("forward" if forward else "backward", chunk, action.microbatch)
        return key, self.chunk_map.stage_of[chunk]


def channel(direction: Direction, sender: int, receiver: int) -> Channel:
    """The channel of a message between two stages, so that each pair uses one for one way only."""
    return direction, sender < receiver


@dataclass(frozen=True, slots=True)
class Handover:
    """A tensor that one stream has made and another takes."""

    tensor: Tensor
    made: streams.Event
    """Behind what makes it."""

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """What the current stream makes, or fills."""
        return cls(tensor, streams.current(tensor.device).record_event())

    def take(self) -> Tensor:
        """The tensor, for the current stream."""
        kind = streams.of(self.tensor.device)
        stream = kind.current(self.tensor.device)
        stream.wait_event(self.made)
        kind.keep(self.tensor, stream)
        return self.tensor


class Messages:
    """What one rank sends and receives in a step."""

    def __init__(self, route: Route, tape: Tape) -> None:
        self.route = route
        self._tape = tape
        self._out: dict[Way, _Lane] = {}
        self._in: dict[Way, _Lane] = {}
        self._box = _Box()
        self._posted: dict[Way, _Posted] = {}
        self._leaving: dict[Way, Tensor] = {}
        # Shapes without numbers belong to the thread that asks for them; nothing takes time there.
        self._inline = any(
            handle is not None and dist.get_backend(handle) == "fake"
            for handle in route.handles.values()
        )

    def expect(self, orders: Sequence[Sequence[Action]], like: Tensor) -> None:
        """Begin a step in which the stages run these actions and all messages are as `like`."""
        own = self.route.stage
        for stage, order in enumerate(orders):
            if stage == own:
                continue
            for action in order:
                found = self.route.target(action)
                if found is not None and found[1] == own:
                    self._receive(found[0], stage, like)

    def send(self, action: Action, tensor: Tensor) -> None:
        """Begin to send what an action made, if anybody needs it; the caller goes on."""
        found = self.route.target(action)
        if found is None:
            return
        key, stage = found
        if stage == self.route.stage:
            self._box.put(key, tensor)
            return
        made = Handover.of(tensor)
        if self._inline:
            self._sent(key, stage, made)
            # On its way until the next one leaves, as on a wire that is as fast as it has to be.
            self._leaving[key[0], stage] = tensor
            return
        lane = _lane(self._out, self._way(key, stage), tensor.device)
        lane.put(lambda: self._sent(key, stage, made))

    def in_order(self, *actions: Action) -> bool:
        """Whether what these actions send leaves in order, by one lane."""
        found = [one for one in map(self.route.target, actions) if one is not None]
        ways = [self._way(*one) for one in found if one[1] != self.route.stage]
        return len(set(ways)) < len(ways)

    def _way(self, key: Key, stage: int) -> Way:
        """Where a message to a stage leaves: its neighbours have a lane each; of two stages each
        is the other's on both sides, so that there each direction has one."""
        return ("forward" if len(self.route.ranks) > 2 else key[0]), stage

    def take(self, key: Key) -> Tensor:
        """What came for a chunk, once it has come. Raises what went wrong in a lane."""
        for lane in self._posted.values():
            lane.arrive(key)
        return self._box.take(key)

    def flush(self) -> None:
        """Wait until all has been sent."""
        for lane in self._out.values():
            lane.flush()
        self._leaving.clear()
        self._box.check()

    def _receive(self, key: Key, stage: int, like: Tensor) -> None:
        def run() -> None:
            try:
                buffer = torch.empty_like(like)
                group = self.route.handle(key[0], stage, self.route.stage)
                between = self.route.between(stage, self.route.stage)
                note = self._tape.note(f"pipeline: {_NAME[key[0]]} [{between}]")
                dist.recv(buffer, self.route.ranks[stage], group=group)
                ended(note)
                self._tape.arrival(_NAME[key[0]], key[1], key[2])
                self._box.put(key, buffer)
            except Exception as error:  # noqa: BLE001  raised where somebody waits
                self._box.fail(error)

        if self._inline:
            self._posted.setdefault((key[0], stage), _Posted()).add(key, run)
        else:
            _lane(self._in, (key[0], stage), like.device).put(run)

    def _sent(self, key: Key, stage: int, made: Handover) -> None:
        direction, chunk, microbatch = key
        try:
            tensor = made.take()
            sending = self._tape.transfer(
                _STREAM[direction],
                _NAME[direction],
                tensor.nbytes,
                "pipeline",
                "send",
                self.route.between(self.route.stage, stage),
            )
            sending.chunk, sending.microbatch = chunk, microbatch
            with sending:
                rank = self.route.ranks[stage]
                group = self.route.handle(direction, self.route.stage, stage)
                dist.send(tensor.contiguous(), rank, group=group)
        except Exception as error:  # noqa: BLE001  raised where somebody waits
            self._box.fail(error)


class _Box:
    """What has arrived."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._held: dict[Key, Handover] = {}
        self._error: Exception | None = None

    def put(self, key: Key, tensor: Tensor) -> None:
        made = Handover.of(tensor)
        with self._changed:
            self._held[key] = made
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def take(self, key: Key) -> Tensor:
        with self._changed:
            self._changed.wait_for(lambda: key in self._held or self._error is not None)
            self._raise()
            made = self._held.pop(key)
        return made.take()

    def check(self) -> None:
        with self._changed:
            self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


class _Posted:
    """A lane without a thread: as there, one receive is posted ahead of what was taken."""

    def __init__(self) -> None:
        self._jobs: dict[Key, _Job] = {}
        """Those that come, in order."""
        self._ahead: set[Key] = set()
        """Posted, and not taken."""

    def add(self, key: Key, job: _Job) -> None:
        self._jobs[key] = job
        if not self._ahead:
            self._post()

    def arrive(self, key: Key) -> None:
        """Let this one come, if it is of this lane, and all before it."""
        while key in self._jobs:
            self._post()
        if key in self._ahead:
            self._ahead.remove(key)
            if self._jobs and not self._ahead:
                self._post()

    def _post(self) -> None:
        key = next(iter(self._jobs))
        self._ahead.add(key)
        self._jobs.pop(key)()


class _Lane:
    """A thread that does one thing after the other, on a stream of its own. It ends with the
    process."""

    def __init__(self, device: torch.device) -> None:
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._device = device
        Thread(target=self._work, daemon=True).start()

    def put(self, job: _Job) -> None:
        self._jobs.put(job)

    def flush(self) -> None:
        done = Event()
        self.put(done.set)
        done.wait()

    def _work(self) -> None:
        kind = streams.of(self._device)
        stream = kind.new(self._device)
        with kind.on(stream):
            while True:
                job = self._jobs.get()
                job()
                # What was sent stays alive until it is gone, and the next transfer begins then.
                stream.synchronize()
                del job


def _lane(lanes: dict[Way, _Lane], place: Way, device: torch.device) -> _Lane:
    """The lane of a direction to or from a stage."""
    if place not in lanes:
        lanes[place] = _Lane(device)
    return lanes[place]
