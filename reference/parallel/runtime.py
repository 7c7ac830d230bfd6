"""One step of one rank: the actions of a schedule, executed.

An action takes what it needs from `messages`, runs a pass of its part of the model, and sends on
what comes out. Between its passes a micro-batch leaves behind the edge of the graph that its
backward begins at, and what the memory policy keeps: what goes to host memory is out before the
forward after the next, and comes back under the backward before its own (Kimi K2,
arXiv:2507.20534, section 2.4.3). The actions are the simulator's own objects (`twin.schedules`), in
its order; a forward that is `paired` takes turns with the backward behind it
(`reference.parallel.overlap`).

Shapes: B batch, T tokens, D hidden.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from reference.kernels.deferred_wgrad import DeferredGradients, deferring_to
from reference.memory.saved_tensor import KeptBytes
from reference.memory.stash import Stash
from reference.model import Transformer
from reference.parallel.messages import Key, Messages
from reference.parallel.overlap import Pace, Pair, Running, Turns
from reference.text.loader import Batch, Weighed
from twin.schedules.base import Action, Pass
from twin.spec.memory import MemorySpec

T = TypeVar("T")
Place = tuple[int, int]
"""Chunk and micro-batch."""


@dataclass(slots=True)
class Entry:
    """The gradient of what came from the chunk before, once the backward has made it. The graph
    does not end in a leaf, which would keep what came, wherever a memory policy has put it."""

    gradient: Tensor | None = None

    def into(self, given: Tensor) -> Tensor:
        """The same numbers, from which the backward comes here."""
        return _Enter.apply(given, torch.empty(0, requires_grad=True), self)  # pyright: ignore[reportReturnType]


class _Enter(torch.autograd.Function):
    """Its second input wants a gradient, so that the pass has one."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, wants: Tensor, entry: Entry) -> Tensor:
        del wants
        ctx.entry = entry
        return given.view_as(given)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, None]:
        ctx.entry.gradient = grad
        return None, None, None


@dataclass(slots=True)
class Flight:
    """A micro-batch between its forward and its backward through one chunk."""

    entry: Entry | None
    """Where what came from the chunk before went in; None where tokens did."""
    edge: GradientEdge
    """Where the backward begins."""
    kind: torch.dtype
    """Of what came out."""
    deferred: DeferredGradients | None
    stash: Stash
    """What it keeps."""
    waits: bool = True
    """False once its input's gradient is there, and only those of its weights are left."""


@dataclass(slots=True)
class Outcome:
    """What a step left, beside the gradients in the parameters."""

    loss: float = 0.0
    """This rank's part of the mean over all tokens, in nats; 0 where the head is elsewhere."""
    kept: int | None = None
    """Most bytes that waited for backwards at once, on the device and the host; None where nobody
    counted: a policy that changes nothing, after the first step of a timeline."""
    flights: int = field(default=0)
    """Most passes that waited for their backward at once."""


class Runtime:
    """Executes steps on the parts of one rank."""

    def __init__(
        self,
        parts: Mapping[int, Transformer],
        messages: Messages,
        turns: Turns,
        policies: Sequence[MemorySpec],
        pace: Pace,
    ) -> None:
        self._parts = parts
        self._messages = messages
        self._turns = turns
        self._policies = policies
        """Of every chunk of the pipeline."""
        self.pace = pace
        self.ledgers: dict[int, tuple[KeptBytes, ...]] | None = None
        """By chunk: what its first forward kept, with names; None where nobody asked."""
        self._flights: dict[Place, Flight] = {}
        self._batches: Sequence[Batch | Weighed] = ()
        self._of: Sequence[float] = ()
        self._outcome = Outcome()
        self._splits = False
        """Whether a backward comes in halves."""
        self._follows: dict[Place, Place] = {}
        """The backward behind each."""
        self._going: deque[Stash] = deque(maxlen=2)
        """What the last two forwards keep, on its way to the host where the policy says so."""
        self._steps = 0
        """Executed so far."""
        self._beside: ThreadPoolExecutor | None = None

    @property
    def _measures(self) -> bool:
        """Whether bytes that wait are counted under any policy, which costs time: where somebody
        asked, and in the first step of a timeline."""
        return self.ledgers is not None or (self._turns.tape.writes and not self._steps)

    @property
    def running(self) -> Running | None:
        """The pass that computes now."""
        return self._turns.running

    def step(
        self,
        orders: Sequence[Sequence[Action]],
        batches: Sequence[Batch | Weighed],
        like: Tensor,
        of: float | Sequence[float],
        done: Callable[[int], None],
    ) -> Outcome:
        """Run the actions of this stage, of the `orders` of all, on micro-batches; every rank of a
        pipeline has the same ones. `like` is a tensor as those between stages; the loss is the mean
        over `of` micro-batches, those of all replicas, or the sum of each one's mean over its own
        `of`; `done` is called with a chunk when its last backward is over."""
        order = orders[self._messages.route.stage]
        self._batches, self._outcome = batches, Outcome()
        self._of = of if isinstance(of, Sequence) else [of] * len(batches)
        self._splits = any(action.kind == "I" for action in order)
        backs = [(one.chunk, one.microbatch) for one in order if one.kind in ("B", "I")]
        self._follows = dict(pairwise(backs))
        self._messages.expect(orders, like)
        left = _backwards(order)
        for action, partner in _paired(order):
            if partner is None:
                self._run(action)
            else:
                self._run_pair(action, partner)
            for one in (action, partner):
                if one is not None and one.kind in ("B", "W"):
                    left[one.chunk] -= 1
                    if left[one.chunk] == 0:
                        done(one.chunk)
        self._messages.flush()
        self._steps += 1
        return self._outcome

    @torch.no_grad()
    def look(
        self, orders: Sequence[Sequence[Action]], batches: Sequence[Batch], like: Tensor
    ) -> list[Tensor]:
        """Forward only: the logits [B, T, W] of each micro-batch whose head is here, in order."""
        found: list[Tensor] = []
        self._messages.expect(orders, like)
        for action in orders[self._messages.route.stage]:
            part = self._parts[action.chunk]
            key: Key = ("forward", action.chunk, action.microbatch)
            embeds = part.part.embedding
            given = batches[action.microbatch][0] if embeds else self._messages.take(key)
            if part.part.head:
                found.append(part(given))
            else:
                self._messages.send(action, part.hidden(given))
        self._messages.flush()
        return found

    def _run(self, action: Action) -> None:
        """A pass by itself."""
        prepared = self._prepare(action)
        out = self._turns.alone(self._running(action), prepared)
        self._finish(action, out)

    def _run_pair(self, forward: Action, backward: Action) -> None:
        """A forward and a backward in turn. Each waits for its own input when its first turn comes,
        and sends its result when it is done; to one neighbour the forward's goes first."""
        first, second = self._running(backward), self._running(forward)
        pair = Pair(first, second)
        if self._beside is None:
            self._beside = ThreadPoolExecutor(1, initializer=_like_here())
        ahead = self._beside.submit(self._run_paired, forward, second, pair)
        in_order = self._messages.in_order(forward, backward)
        try:
            self._run_paired(backward, first, pair, ahead if in_order else None)
        finally:
            ahead.result()
        self._turns.running = None

    def _run_paired(
        self, action: Action, running: Running, pair: Pair, before: Future[None] | None = None
    ) -> None:
        """One pass of a pair, on a thread of its own; its result goes out behind another's."""
        out = self._turns.paired(running, pair, lambda: self._prepare(action))
        if before is not None:
            before.result()
        self._finish(action, out)

    def _prepare(self, action: Action) -> Callable[[], Tensor | None]:
        """What the action needs, taken; and the pass itself."""
        chunk, microbatch = action.chunk, action.microbatch
        part = self._parts[chunk]
        match action.kind:
            case "F":
                given = None
                if not part.part.embedding:
                    given = self._messages.take(("forward", chunk, microbatch))
                return lambda: self._forward(action, given)
            case "B" | "I":
                grad = None
                if not part.part.head:
                    grad = self._messages.take(("backward", chunk, microbatch))
                return lambda: self._backward(action, grad)
            case "W":
                deferred = self._flights.pop((chunk, microbatch)).deferred
                assert deferred is not None
                return deferred.run

    def _forward(self, action: Action, given: Tensor | None) -> Tensor | None:
        """Through the part; returns what goes on to the next."""
        part = self._parts[action.chunk]
        tokens_BT, *targets = self._batches[action.microbatch]
        deferred = DeferredGradients() if self._splits else None
        if len(self._going) == self._going.maxlen:
            self._going[0].wait()
        entry = None if given is None else Entry()
        with (
            deferring_to(deferred),
            Stash(self._policies[action.chunk], measure=self._measures) as stash,
        ):
            source = tokens_BT if given is None or entry is None else entry.into(given)
            head = part.part.head
            of = self._of[action.microbatch]
            out = part.loss(source, *targets) / of if head else part.hidden(source)
        place = (action.chunk, action.microbatch)
        edge = get_gradient_edge(out)
        self._flights[place] = Flight(entry, edge, out.dtype, deferred, stash)
        self._going.append(stash)
        self._count(action.chunk, stash)
        if head:
            self._outcome.loss += out.item()
            return None
        return out.detach()

    def _backward(self, action: Action, grad: Tensor | None) -> Tensor | None:
        """Back through the part; returns the gradient of what was given."""
        part, place = self._parts[action.chunk], (action.chunk, action.microbatch)
        split = action.kind == "I"
        flight = self._flights[place] if split else self._flights.pop(place)
        following = self._flights.get(self._follows.get(place, place))
        if following is not None and following is not flight:
            flight.stash.lead(following.stash)
        if grad is None:
            grad = torch.ones((), dtype=flight.kind, device=part.device)
        with flight.deferred.held() if split and flight.deferred else nullcontext():
            torch.autograd.backward((flight.edge,), (grad,))
        flight.waits = False
        if flight.entry is None:
            return None
        made, flight.entry.gradient = flight.entry.gradient, None
        return made

    def _finish(self, action: Action, out: Tensor | None) -> None:
        if out is not None:
            self._messages.send(action, out)

    def _count(self, chunk: int, stash: Stash) -> None:
        outcome = self._outcome
        if self.ledgers is not None:
            self.ledgers.setdefault(chunk, stash.ledger)
        outcome.flights = max(outcome.flights, len(self._flights))
        if stash.kept:
            waiting = [one.stash.kept for one in self._flights.values() if one.waits]
            outcome.kept = max(outcome.kept or 0, sum(sum(one.values()) for one in waiting))
            layers = sum(one["activations"] + one["host"] for one in waiting)
            self._turns.tape.memory("activations", layers)

    def _running(self, action: Action) -> Running:
        place = (action.chunk, action.microbatch)
        pace = self.pace.of(action.chunk, action.kind)
        return Running(self._turns.tape, action.kind, place, pace)


def _paired(order: Sequence[Action]) -> Iterator[tuple[Action, Action | None]]:
    """Actions in order; a paired forward with the backward behind it."""
    rest = iter(order)
    for action in rest:
        yield action, next(rest) if action.paired else None


def _backwards(order: Sequence[Action]) -> dict[int, int]:
    """Passes that give a chunk's weights gradients, by chunk."""
    found: dict[int, int] = {}
    last: Sequence[Pass] = ("B", "W")
    for action in order:
        if action.kind in last:
            found[action.chunk] = found.get(action.chunk, 0) + 1
    return found


def _like_here() -> Callable[[], None]:
    """What makes another thread compute as this one."""
    threads = torch.get_num_threads()
    modes = _get_current_dispatch_mode_stack()
    device = torch.cuda.current_device() if torch.cuda.is_available() else None

    def set_up() -> None:
        torch.set_num_threads(threads)
        if device is not None:
            torch.cuda.set_device(device)
        for mode in modes:
            mode.__enter__()

    return set_up
