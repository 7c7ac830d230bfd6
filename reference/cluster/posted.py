"""Collectives of messages whose receives are posted first: what gloo moves on shared connections at
half the rate, or twice.

gloo sends a message once it knows that the other side waits for it, and tells so on the connection
that carries the messages of both sides: behind whatever was sent there before. Its all-to-all sends
before it receives, so that the later of two ranks sends all it has, and only then the earlier one:
half the rate. Its reduce-scatter is an all-reduce: twice the bytes (torch 2.13). Here every receive
is posted before anything is sent, and every rank sends each other rank its share directly: the
bytes of the lower bound, both ways at a time (README.md).

In step k of N - 1 a rank sends to the k-th rank after it and receives from the k-th before it, so
that no link carries more than one message: of several that meet on one, TCP favours some, and the
rest then come alone.

A reduce-scatter adds in the order of ranks, so that its sums are the same bits on every try.

Shapes: X any, N ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Thread

import torch
import torch.distributed as dist
from torch import Tensor


class Exchange:
    """Messages between all ranks of a group, under way from the start: `parts[i]` to rank i, and
    into `into[i]` what comes from it, all contiguous. Parts of no values are no messages, on both
    sides; a rank's own is copied at once. What is sent must stay as it is until `wait` is over.

    Several of one group may be under way at once, begun in the same order on all ranks, where each
    has a `tag` of its own.
    """

    def __init__(
        self,
        into: Sequence[Tensor],
        parts: Sequence[Tensor],
        group: dist.ProcessGroup | None = None,
        tag: int = 0,
    ) -> None:
        self._parts, self._group, self._tag = parts, group, tag
        self._rank, self._size = dist.get_rank(group), dist.get_world_size(group)
        self._error: Exception | None = None
        receives = {
            other: dist.irecv(into[other], group=group, group_src=other, tag=tag)
            for other in range(self._size)
            if other != self._rank and into[other].numel()
        }
        self._thread = Thread(target=self._run, args=(receives,), daemon=True)
        self._thread.start()
        into[self._rank].copy_(parts[self._rank])

    def wait(self) -> None:
        """Until all has arrived, and all that was sent is gone. Raises what went wrong."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self, receives: Mapping[int, dist.Work | None]) -> None:
        try:
            for step in range(1, self._size):
                self._send((self._rank + step) % self._size)
                arriving = receives.get((self._rank - step) % self._size)
                if arriving is not None:
                    arriving.wait()
        except Exception as error:  # noqa: BLE001  raised where somebody waits
            self._error = error

    def _send(self, other: int) -> None:
        if self._parts[other].numel():
            dist.send(self._parts[other], group=self._group, group_dst=other, tag=self._tag)


def all_to_all(
    into_X: Tensor,
    x_X: Tensor,
    received: Sequence[int] | None = None,
    sent: Sequence[int] | None = None,
    group: dist.ProcessGroup | None = None,
    tag: int = 0,
) -> Exchange:
    """Begin to send `sent[i]` rows to rank i, in order, and to receive `received[i]` from it; as
    many for each without. As `dist.all_to_all_single`; `tag` as of `Exchange`."""
    size = dist.get_world_size(group)
    return Exchange(_cut(into_X, received, size), _cut(x_X, sent, size), group, tag)


def reduce_scatter(part: Tensor, x_X: Tensor, group: dist.ProcessGroup | None = None) -> None:
    """This rank's part, one of N equal ones in order, of the sum over all ranks. As
    `dist.reduce_scatter_single`."""
    size = dist.get_world_size(group)
    arrived_NX = x_X.new_empty(size, *part.shape)
    Exchange(arrived_NX.unbind(), x_X.view(size, *part.shape).unbind(), group).wait()
    torch.sum(arrived_NX, dim=0, out=part)


def all_gather(into_X: Tensor, part: Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Every rank's part, in order; `part` may be a part of `into_X`: this rank's. As
    `dist.all_gather_single`."""
    size = dist.get_world_size(group)
    into_NX = into_X.view(size, *part.shape)
    Exchange(into_NX.unbind(), [part] * size, group).wait()


def _cut(x: Tensor, rows: Sequence[int] | None, size: int) -> Sequence[Tensor]:
    return x.chunk(size) if rows is None else x.split(list(rows))
