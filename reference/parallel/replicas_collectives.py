"""Collectives over replicas that take several flat tensors as one: one line of the timeline, the
same tensors in the same order on every rank. A group of one rank moves nothing and writes nothing.

Shapes: X any.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread
from time import time_ns

import torch.distributed as dist
from torch import Tensor

from reference.parallel import gloo_collectives
from reference.parallel.groups import Group
from reference.parallel.timeline import Transfer


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
        if tensors[0].device.type == "cpu":
            self.thread = Thread(target=self._in_turn, args=(self.thread,), daemon=True)
            self.thread.start()
            return
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
        self._transfer.start = time_ns()
        try:
            for x_X, into in zip(self._tensors, self._sums, strict=True):
                work = self._sum(into, x_X, self._group)
                if work is not None:
                    work.wait()
            self._transfer.end()
        except Exception as error:  # noqa: BLE001  raised where somebody waits
            self._error = error


def _all_reduce(into: Tensor, x_X: Tensor, group: Group) -> dist.Work | None:
    del into
    return dist.all_reduce(x_X, group=group.handle, async_op=True)


def _reduce_scatter(part: Tensor, x_X: Tensor, group: Group) -> dist.Work | None:
    if group.posts(x_X):
        gloo_collectives.reduce_scatter(part, x_X, group.handle)
        return None
    return dist.reduce_scatter_single(part, x_X, group=group.handle, async_op=True)


def all_gather(group: Group, tensors: Sequence[Tensor], name: str) -> None:
    """Fill each tensor, of which this rank has made its own of `size` equal parts, with those of
    the other ranks."""
    if group.handle is not None and tensors:
        with _written(group, tensors, name, "all_gather"):
            for x_X in tensors:
                own = x_X.tensor_split(group.size)[group.index]
                if group.posts(x_X):
                    gloo_collectives.all_gather(x_X, own, group.handle)
                else:
                    dist.all_gather_single(x_X, own, group=group.handle)


def _written(group: Group, tensors: Sequence[Tensor], name: str, kind: str) -> Transfer:
    size = sum(x_X.nbytes for x_X in tensors)
    return group.tape.transfer("data", name, size, group.kind, kind)
