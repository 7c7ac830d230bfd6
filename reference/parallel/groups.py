"""Ranks that speak with each other, and the collectives between them, each of which the timeline
records (`reference.parallel.timeline`). A group of one rank moves nothing and writes nothing.

`Sums` and `all_gather_parts` take several flat tensors as one: one line of the timeline, the same
tensors in the same order on every rank.

Shapes: X any.

Collectives of messages whose receives are posted first: what gloo moves on shared connections at
half the rate, or twice.

gloo sends a message once it knows that the other side waits for it, and tells so on the connection
that carries the messages of both sides: behind whatever was sent there before. Its all-to-all sends
before it receives, so that the later of two ranks sends all it has, and only then the earlier one:
half the rate. Its reduce-scatter is an all-reduce: twice the bytes (torch 2.13). Here every receive
is posted before anything is sent, and every rank sends each other rank its share directly: the
bytes of the lower bound, both ways at a time (README.md).

A reduce-scatter adds in the order of ranks, so that its sums are the same bits on every try.

Shapes: X any, N ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from reference import streams
from reference.parallel.mesh import Kind
from reference.parallel.timeline import Stream, Tape, Transfer


class PostedMessages:
    """Messages between all ranks of a group, all under way from the start: `parts[i]` to rank i,
    and into `into[i]` what comes from it, all contiguous. Parts of no values are no messages, on
    both sides; a rank's own is copied at once. What is sent must stay as it is until `wait` is
    over. Several of one group may be under way at once, begun in the same order on all ranks.

    Rejected: one message per rank at a time, in N - 1 steps, so that none meet on a link. Between 4
    ranks over 100 Mbps it won nothing with equal parts of 1 MiB, and lost half with unequal ones,
    since a step lasts as long as its largest part.
    """

    def __init__(
        self,
        into: Sequence[Tensor],
        parts: Sequence[Tensor],
        group: dist.ProcessGroup | None = None,
    ) -> None:
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        others = [(rank + step) % size for step in range(1, size)]
        self._parts = parts
        self._works = [
            dist.irecv(into[other], group=group, group_src=other)
            for other in others
            if into[other].numel()
        ]
        self._works += [
            dist.isend(parts[other], group=group, group_dst=other)
            for other in others
            if parts[other].numel()
        ]
        if into[rank].data_ptr() != parts[rank].data_ptr():  # else it is on its way from there
            into[rank].copy_(parts[rank])

    def wait(self) -> None:
        """Until all has arrived, and all that was sent is gone."""
        for work in self._works:
            if work is not None:
                work.wait()
        self._works.clear()  # gloo waits for ever where a receive is awaited again


def all_to_all(
    into_X: Tensor,
    x_X: Tensor,
    received: Sequence[int] | None = None,
    sent: Sequence[int] | None = None,
    group: dist.ProcessGroup | None = None,
) -> PostedMessages:
    """Begin to send `sent[i]` rows to rank i, in order, and to receive `received[i]` from it; as
    many for each without. As `dist.all_to_all_single`."""
    size = dist.get_world_size(group)
    return PostedMessages(_cut(into_X, received, size), _cut(x_X, sent, size), group)


def reduce_scatter(part: Tensor, x_X: Tensor, group: dist.ProcessGroup | None = None) -> None:
    """This rank's part, one of N equal ones in order, of the sum over all ranks. As
    `dist.reduce_scatter_single`."""
    reduce_scatters([part], [x_X], group)


def reduce_scatters(
    parts: Sequence[Tensor], tensors: Sequence[Tensor], group: dist.ProcessGroup | None = None
) -> None:
    """The same of several tensors, all under way at once: ranks wait for each other once."""
    size = dist.get_world_size(group)
    arrived = [part.new_empty(size, *part.shape) for part in parts]
    moving = [
        PostedMessages(into_NX.unbind(), x_X.view(size, *part.shape).unbind(), group)
        for into_NX, part, x_X in zip(arrived, parts, tensors, strict=True)
    ]
    for messages, into_NX, part in zip(moving, arrived, parts, strict=True):
        messages.wait()
        torch.sum(into_NX, dim=0, out=part)


def all_gather(into_X: Tensor, part: Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Every rank's part, in order; `part` may be a part of `into_X`: this rank's. As
    `dist.all_gather_single`."""
    _gathering(into_X, part, group).wait()


def _gathering(into_X: Tensor, part: Tensor, group: dist.ProcessGroup | None) -> PostedMessages:
    size = dist.get_world_size(group)
    into_NX = into_X.view(size, *part.shape)
    return PostedMessages(into_NX.unbind(), [part] * size, group)


def _cut(x: Tensor, rows: Sequence[int] | None, size: int) -> Sequence[Tensor]:
    return x.chunk(size) if rows is None else x.split(list(rows))


Reduction = Literal["sum", "max"]
_OPERATIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks of one group, seen from one of them."""

    kind: Kind
    ranks: tuple[int, ...]
    index: int
    """Which of them this rank is."""
    handle: dist.ProcessGroup | None
    """torch's group; None for a rank alone."""
    tape: Tape

    @property
    def size(self) -> int:
        """Its ranks."""
        return len(self.ranks)

    def posts(self, x: Tensor) -> bool:
        """Whether a tensor travels as messages whose receives are posted first: over gloo, whose
        own collectives take up to twice as long (`reference.parallel.groups`)."""
        asked = streams.of(x.device).backend == "gloo"
        return asked and "gloo" in dist.get_backend(self.handle)

    def all_reduce(self, x: Tensor, name: str, reduction: Reduction = "sum") -> Tensor:
        """The sum or the maximum over all ranks, in place."""
        if self.handle is not None:
            with self.transfer("data", name, "all_reduce", x.nbytes):
                dist.all_reduce(x, op=_OPERATIONS[reduction], group=self.handle)
        return x

    def reduced(
        self,
        numbers: Sequence[float],
        name: str,
        device: torch.device,
        reduction: Reduction = "sum",
    ) -> list[float]:
        """The sum or the maximum of each number over all ranks, in float64."""
        if self.handle is None:
            return list(numbers)
        packed_X = torch.tensor(numbers, dtype=torch.float64).to(device)
        return self.all_reduce(packed_X, name, reduction).tolist()

    def all_gather(self, into_X: Tensor, part: Tensor, name: str) -> Tensor:
        """Every rank's part, in order. `part` may be a part of `into_X`: this rank's."""
        if self.handle is None:
            if into_X.data_ptr() != part.data_ptr():
                into_X.copy_(part)
            return into_X
        with self.transfer("data", name, "all_gather", into_X.nbytes):
            dist.all_gather_single(into_X, part, group=self.handle)
        return into_X

    def all_to_all(
        self, x: Tensor, sent: Sequence[int] | None, received: Sequence[int] | None, name: str
    ) -> Moving:
        """Begin to send `sent[i]` rows to rank i, and to receive `received[i]` from it; as many for
        each without. Wait for what comes with `Moving.wait`."""
        rows = x.shape[0] if received is None else sum(received)
        out = x.new_empty(rows, *x.shape[1:])
        transfer = self.transfer("expert", name, "all_to_all", x.nbytes).begin()
        if self.posts(x):
            exchange = all_to_all(out, x, received, sent, self.handle)
            return Moving(out, x, exchange, transfer)
        work = dist.all_to_all_single(
            out, x, _listed(received), _listed(sent), group=self.handle, async_op=True
        )
        assert work is not None
        return Moving(out, x, work, transfer)

    def transfer(self, stream: Stream, name: str, kind: str, size: int) -> Transfer:
        """A line of the timeline for a collective of so many bytes."""
        ranks = ", ".join(map(str, self.ranks))
        return self.tape.transfer(stream, name, size, self.kind, kind, ranks)


@dataclass(slots=True)
class Moving:
    """A tensor on its way."""

    out: Tensor
    kept: Tensor | None
    """What is sent must stay alive."""
    work: dist.Work | PostedMessages
    transfer: Transfer

    def of(self, place: tuple[int, int]) -> Moving:
        """Belongs to a chunk and a micro-batch."""
        self.transfer.chunk, self.transfer.microbatch = place
        return self

    def wait(self) -> Tensor:
        """What came. On a GPU its stream waits, not the host."""
        self.work.wait()
        self.transfer.end()
        self.kept = None
        return self.out


def _listed(counts: Sequence[int] | None) -> list[int] | None:
    return None if counts is None else list(counts)


class Sums:
    """Tensors whose sums over a group are on their way, while other work goes on.

    NCCL keeps them in order on its stream. gloo has none, so on a CPU a thread sums one tensor
    after the other, behind the `before` ones: they would share links, and end together, late.
    """

    def __init__(
        self,
        group: Group,
        tensors: Sequence[Tensor],
        name: str,
        chunk: int,
        *,
        whole: bool,
        before: Sums | None = None,
    ) -> None:
        """Begin. `whole`: every rank gets all, in place; else its own of `size` equal parts."""
        self._group = group
        self._sums = list(tensors)
        self._tensors = tensors
        """What is sent must stay alive."""
        self._works: list[dist.Work] = []
        self.thread = None if before is None else before.thread
        """What sums them, on a CPU; where there is nothing to do, what sums those before."""
        self._error: Exception | None = None
        if group.handle is None or not tensors:
            return
        if not whole:
            self._sums = [x_X.new_empty(x_X.numel() // group.size) for x_X in tensors]
        self._sum = _all_reduce if whole else _reduce_scatter
        kind = "all_reduce" if whole else "reduce_scatter"
        self._transfer = _written(group, tensors, name, kind)
        self._transfer.chunk = chunk
        if group.posts(tensors[0]):
            self.thread = Thread(target=self._in_turn, args=(self.thread,), daemon=True)
            self.thread.start()
            return
        self._transfer.begin()
        for x_X, into in zip(tensors, self._sums, strict=True):
            work = self._sum(into, x_X, group)
            assert work is not None
            self._works.append(work)

    def wait(self) -> list[Tensor]:
        """The sums. On a GPU its stream waits, not the host, so the timeline shows when that was
        told to."""
        for work in self._works:
            work.wait()
        if self.thread is not None:
            self.thread.join()
        elif self._works:
            self._transfer.end()
        if self._error is not None:
            raise self._error
        return self._sums

    def _in_turn(self, before: Thread | None) -> None:
        """Sum everything, on a thread of its own."""
        if before is not None:
            before.join()
        self._transfer.begin()
        try:
            if self._sum is _reduce_scatter:
                reduce_scatters(self._sums, self._tensors, self._group.handle)
            else:
                for x_X in self._tensors:
                    dist.all_reduce(x_X, group=self._group.handle)
            self._transfer.end()
        except Exception as error:  # noqa: BLE001  raised where somebody waits
            self._error = error


def _all_reduce(into: Tensor, x_X: Tensor, group: Group) -> dist.Work | None:
    del into
    return dist.all_reduce(x_X, group=group.handle, async_op=True)


def _reduce_scatter(part: Tensor, x_X: Tensor, group: Group) -> dist.Work | None:
    return dist.reduce_scatter_single(part, x_X, group=group.handle, async_op=True)


def all_gather_parts(group: Group, tensors: Sequence[Tensor], name: str) -> None:
    """Fill each tensor, of which this rank has made its own of `size` equal parts, with those of
    the other ranks."""
    if group.handle is not None and tensors:
        with _written(group, tensors, name, "all_gather"):
            moving: list[PostedMessages] = []
            for x_X in tensors:
                own = x_X.tensor_split(group.size)[group.index]
                if group.posts(x_X):
                    moving.append(_gathering(x_X, own, group.handle))
                else:
                    dist.all_gather_single(x_X, own, group=group.handle)
            for messages in moving:
                messages.wait()


def _written(group: Group, tensors: Sequence[Tensor], name: str, kind: str) -> Transfer:
    size = sum(x_X.nbytes for x_X in tensors)
    return group.transfer("data", name, kind, size)
