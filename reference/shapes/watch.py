"""What happens in a step, seen below all of its code: each storage from its creation to its death,
and the arithmetic of each matrix product.

A storage counts when the first tensor on it comes out of an operation, and until its last tensor is
gone: as an allocator without fragments would see it. Where it is made says who made it
(`reference.shapes.place`); a copy has the name of what it copies. Kernels that only make shapes say
what they would compute (`reference.kernels.work`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import ref

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
Pass = tuple[str, int, int]
"""Kind of a pass, chunk and micro-batch."""
_PRODUCTS: Final = {aten.mm: 0, aten.bmm: 0, aten.addmm: 1, aten.baddbmm: 1}
"""Products of matrices, and where the first of the two is among the arguments."""


@dataclass(slots=True, eq=False)
class Storage:
    """A piece of memory."""

    name: str
    """Where it was made."""
    during: Pass | None
    """The pass that ran then."""
    bytes: int
    host: bool
    born: int
    """Which of all births and deaths it was."""
    died: int | None = None


class Watch(TorchDispatchMode):
    """Follows storages and products within."""

    def __init__(self, running: Callable[[], Pass | None], place: Callable[[], str]) -> None:
        super().__init__()
        self._running = running
        self._place = place
        self._alive: dict[int, tuple[Storage, Any]] = {}
        self._events = 0
        self.every: list[Storage] = []
        """All storages, in the order of their creation."""
        self.flop: Counter[Pass | None] = Counter()
        """FLOP by the pass that ran; None: between passes."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        del types
        made = func(*args, **(kwargs or {}))
        first = _PRODUCTS.get(func.overloadpacket)
        if first is not None:
            self.compute(_product(args[first], args[first + 1]))
        if isinstance(made, Tensor):
            self._see(made, func, args)
        elif isinstance(made, (tuple, list)):
            for one in made:
                if isinstance(one, Tensor):
                    self._see(one, func, args)
        return made

    def compute(self, flop: float) -> None:
        """Count the arithmetic of one kernel."""
        self.flop[self._running()] += flop

    def rename(self, tensor: Tensor, name: str) -> None:
        """Give the storage under a tensor another name."""
        found = self.find(tensor)
        if found is not None:
            found.name = name

    def find(self, tensor: Tensor) -> Storage | None:
        """The storage under a tensor."""
        found = self._alive.get(tensor.untyped_storage()._cdata)  # noqa: SLF001
        return found[0] if found else None

    def fullest(self, since: int = 0) -> tuple[int, int]:
        """The event after which the device held most, and those bytes; of the events from `since`
        on."""
        changes = [0] * (self._events + 1)
        for one in self.every:
            if not one.host:
                changes[one.born] += one.bytes
                if one.died is not None:
                    changes[one.died] -= one.bytes
        held = most = at = 0
        for event, change in enumerate(changes):
            held += change
            if event >= since and held > most:
                most, at = held, event
        return at, most

    def alive(self, event: int) -> Sequence[Storage]:
        """What there was after an event."""
        return [
            one for one in self.every if one.born <= event and (one.died is None or one.died > event)
        ]

    @property
    def events(self) -> int:
        """Births and deaths so far."""
        return self._events

    def _see(self, tensor: Tensor, func: Any, args: Any) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001 - torch has no public identity
        if key in self._alive:
            if func is aten.copy_.default and isinstance(args[1], Tensor):
                self._copied(self._alive[key][0], args[1])
            return
        self._events += 1
        host = tensor.device.type == "cpu"
        made = Storage(self._place(), self._running(), storage.nbytes(), host, self._events)
        self.every.append(made)

        def end(_: Any) -> None:
            self._alive.pop(key, None)
            self._events += 1
            made.died = self._events

        self._alive[key] = made, ref(storage, end)

    def _copied(self, into: Storage, source: Tensor) -> None:
        """A copy to or from a host has the name of what it copies."""
        found = self.find(source)
        if found is not None and found.host != into.host:
            into.name, into.during = found.name, found.during


def _product(left: Tensor, right: Tensor) -> float:
    """FLOP of a product of two matrices, or of several; none of one with a vector, which no matrix
    unit computes."""
    rows, inner = left.shape[-2:]
    columns = right.shape[-1]
    if min(rows, inner, columns) == 1:
        return 0.0
    return 2.0 * left.numel() * columns
