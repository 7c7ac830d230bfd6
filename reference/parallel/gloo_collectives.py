"""Collectives of messages whose receives are posted first: what gloo moves on shared connections at
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

import torch
import torch.distributed as dist
from torch import Tensor


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
    size = dist.get_world_size(group)
    arrived_NX = x_X.new_empty(size, *part.shape)
    PostedMessages(arrived_NX.unbind(), x_X.view(size, *part.shape).unbind(), group).wait()
    torch.sum(arrived_NX, dim=0, out=part)


def all_gather(into_X: Tensor, part: Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Every rank's part, in order; `part` may be a part of `into_X`: this rank's. As
    `dist.all_gather_single`."""
    size = dist.get_world_size(group)
    into_NX = into_X.view(size, *part.shape)
    PostedMessages(into_NX.unbind(), [part] * size, group).wait()


def _cut(x: Tensor, rows: Sequence[int] | None, size: int) -> Sequence[Tensor]:
    return x.chunk(size) if rows is None else x.split(list(rows))
