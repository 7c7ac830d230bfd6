"""Collectives over replicas that take several flat tensors as one: one line of the timeline, the
same tensors in the same order on every rank. A group of one rank moves nothing and writes nothing.

Shapes: X any.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from threading import Thread

import torch.distributed as dist
from torch import Tensor

from reference.parallel.groups import Group
from reference.parallel.timeline import Transfer


class Sums:
    """Tensors whose sums over a group are on their way, while other work goes on."""

    def __init__(
        self, group: Group, tensors: Sequence[Tensor], name: str, chunk: int, *, whole: bool
    ) -> None:
        """Begin. `whole`: every rank gets all, in place; else its own of `size` equal parts."""
        self._sums = list(tensors)
        self._tensors = tensors
        """What is sent must stay alive."""
        self._works: list[dist.Work] = []
        self._watch: Thread | None = None
        if group.handle is None or not tensors:
            return
        if not whole:
            self._sums = [x_X.new_empty(x_X.numel() // group.size) for x_X in tensors]
        kind = "all_reduce" if whole else "reduce_scatter"
        self._transfer = _written(group, tensors, name, kind)
        self._transfer.chunk = chunk
        for x_X, into in zip(tensors, self._sums, strict=True):
            work = (
                dist.all_reduce(x_X, group=group.handle, async_op=True)
                if whole
                else dist.reduce_scatter_single(into, x_X, group=group.handle, async_op=True)
            )
            assert work is not None
            self._works.append(work)
        if not tensors[0].is_cuda:
            self._watch = Thread(target=self._end, daemon=True)
            self._watch.start()

    def wait(self) -> list[Tensor]:
        """The sums. On a GPU its stream waits, not the host, so the timeline shows when that was
        told to."""
        for work in self._works:
            work.wait()
        if self._watch is not None:
            self._watch.join()
        elif self._works:
            self._transfer.end()
        return self._sums

    def _end(self) -> None:
        """Write down when the transfer was over, which nobody may have waited for yet."""
        with suppress(RuntimeError):  # a lost rank; `wait` says so
            for work in self._works:
                work.wait()
            self._transfer.end()


def all_gather(group: Group, tensors: Sequence[Tensor], name: str) -> None:
    """Fill each tensor, of which this rank has made its own of `size` equal parts, with those of
    the other ranks."""
    if group.handle is not None and tensors:
        with _written(group, tensors, name, "all_gather"):
            for x_X in tensors:
                own = x_X.tensor_split(group.size)[group.index]
                dist.all_gather_single(x_X, own, group=group.handle)


def _written(group: Group, tensors: Sequence[Tensor], name: str, kind: str) -> Transfer:
    size = sum(x_X.nbytes for x_X in tensors)
    return group.tape.transfer("data", name, size, group.kind, kind)
