"""Ranks that speak with each other, and the collectives between them, each of which is written down
(`reference.parallel.timeline`). A group of one rank moves nothing and writes nothing.

Shapes: X any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch.distributed as dist
from torch import Tensor

from reference.parallel import gloo_collectives
from reference.parallel.mesh import Kind
from reference.parallel.timeline import Tape, Transfer

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
        own collectives take up to twice as long (`reference.parallel.gloo_collectives`)."""
        return not x.is_cuda and "gloo" in dist.get_backend(self.handle)

    def all_reduce(self, x: Tensor, name: str, reduction: Reduction = "sum") -> Tensor:
        """The sum or the maximum over all ranks, in place."""
        if self.handle is not None:
            with self._written(name, "all_reduce", x.nbytes):
                dist.all_reduce(x, op=_OPERATIONS[reduction], group=self.handle)
        return x

    def all_gather(self, into_X: Tensor, part: Tensor, name: str) -> Tensor:
        """Every rank's part, in order. `part` may be a part of `into_X`: this rank's."""
        if self.handle is None:
            if into_X.data_ptr() != part.data_ptr():
                into_X.copy_(part)
            return into_X
        with self._written(name, "all_gather", into_X.nbytes):
            dist.all_gather_single(into_X, part, group=self.handle)
        return into_X

    def all_to_all(
        self, x: Tensor, sent: Sequence[int] | None, received: Sequence[int] | None, name: str
    ) -> Moving:
        """Begin to send `sent[i]` rows to rank i, and to receive `received[i]` from it; as many for
        each without. Wait for what comes with `Moving.wait`."""
        rows = x.shape[0] if received is None else sum(received)
        out = x.new_empty(rows, *x.shape[1:])
        transfer = self.tape.transfer("expert", name, x.nbytes, self.kind, "all_to_all")
        if self.posts(x):
            exchange = gloo_collectives.all_to_all(out, x, received, sent, self.handle)
            return Moving(out, x, exchange, transfer)
        work = dist.all_to_all_single(
            out, x, _listed(received), _listed(sent), group=self.handle, async_op=True
        )
        assert work is not None
        return Moving(out, x, work, transfer)

    def _written(self, name: str, kind: str, size: int) -> Transfer:
        return self.tape.transfer("data", name, size, self.kind, kind)


@dataclass(slots=True)
class Moving:
    """A tensor on its way."""

    out: Tensor
    kept: Tensor | None
    """What is sent must stay alive."""
    work: dist.Work | gloo_collectives.Exchange
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
