"""What happens in a step, seen below all of its code: each storage from its creation to its death,
and the arithmetic of each matrix product.

A storage counts from the first tensor on it that comes out of an operation until the last one is
gone: what an allocator without fragments would hold. Its name is the place where it is made: the
module whose forward runs, or the node of autograd whose backward does (`Places`). A copy to or from
a host has the name of what it copies; what travels between stages is a message. Kernels that only
make shapes say what they would compute (`reference.kernels.path`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import local
from typing import Any, Final
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from reference.memory.saved_tensor import key


class _Stack(local):
    """The modules whose forward runs in a thread, outermost first."""

    def __init__(self) -> None:
        self.names: list[str] = []


class Places:
    """The modules of a rank's parts, by name, as they run."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._stack = _Stack()

    @contextmanager
    def followed(self, parts: Iterable[nn.Module]) -> Iterator[None]:
        """Within, `now` knows these."""
        self._names = {id(one): name for part in parts for name, one in part.named_modules()}

        def enter(module: nn.Module, given: Any) -> None:
            del given
            self._stack.names.append(self._names.get(id(module), ""))

        def leave(module: nn.Module, given: Any, made: Any) -> None:
            del module, given, made
            self._stack.names.pop()

        handles = (
            register_module_forward_pre_hook(enter),
            register_module_forward_hook(leave, always_call=True),
        )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def now(self) -> str:
        """`layers.3.attention.out`, `GroupedMatmulBackward`, or "" outside of both."""
        if self._stack.names:
            return self._stack.names[-1]
        node = torch._C._current_autograd_node()  # noqa: SLF001 - it has no public name
        return node.name().lstrip("_") if node is not None else ""


aten, c10d = torch.ops.aten, torch.ops.c10d
Pass = tuple[str, int, int]
"""Kind of a pass, chunk and micro-batch."""
MESSAGE: Final = "message"
_PRODUCTS: Final = {aten.mm: 0, aten.bmm: 0, aten.addmm: 1, aten.baddbmm: 1}
"""Products of matrices, and where the first of the two is among the arguments."""


@dataclass(slots=True, eq=False)
class Storage:
    """A piece of memory."""

    name: str
    during: Pass | None
    """The pass that made it, or that was the first to read it where it came from another stage."""
    bytes: int
    host: bool
    key: int
    """What tells it from all others that are alive (`reference.memory.saved_tensor.key`)."""
    born: int
    """Which of all births and deaths it was."""
    died: int | None = None
    copied: bool = False
    """Whether it is a copy to or from the host."""
    read: int | None = None
    """Of a message: when the pass began to read it that needs it."""

    def alive(self, event: int) -> bool:
        """Whether it was there after an event."""
        return self.born <= event and (self.died is None or self.died > event)


class Watch(TorchDispatchMode):
    """Follows storages and products within."""

    def __init__(self, running: Callable[[], Pass | None], place: Callable[[], str]) -> None:
        super().__init__()
        self._running = running
        self._place = place
        self._alive: dict[int, tuple[Storage, ref[Any]]] = {}
        self.events = 0
        """Births and deaths so far."""
        self.last: dict[Pass, int] = {}
        """The last event while each pass ran."""
        self.every: list[Storage] = []
        """All storages, in the order of their creation."""
        self.flop: defaultdict[Pass | None, float] = defaultdict(float)
        """FLOP by the pass that ran; None: between passes."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        made = func(*args, **(kwargs or {}))
        first = _PRODUCTS.get(func.overloadpacket)
        if first is not None:
            self.compute(_product(args[first], args[first + 1]))
        if func is c10d.send.default or func is c10d.recv_.default:
            self.rename(args[0][0], MESSAGE)
        if isinstance(made, Tensor):
            self._see(made, func, args)
        elif isinstance(made, tuple | list):
            for one in made:
                if isinstance(one, Tensor):
                    self._see(one, func, args)
        return made

    def compute(self, flop: float) -> None:
        """Count the arithmetic of one kernel."""
        self.flop[self._running()] += flop

    def rename(self, tensor: Tensor, name: str) -> None:
        """Give the storage under a tensor another name, and to no pass."""
        found = self._alive.get(key(tensor))
        if found is not None:
            found[0].name, found[0].during = name, None

    def _see(self, tensor: Tensor, func: Any, args: Any) -> None:
        place = key(tensor)
        if place not in self._alive:
            self._begin(tensor, place)
        elif func is aten.copy_.default:
            self._copy(self._alive[place][0], args[1])
        elif self._alive[place][0].name == MESSAGE:
            self._read(self._alive[place][0])

    def _begin(self, tensor: Tensor, place: int) -> None:
        storage, host = tensor.untyped_storage(), tensor.device.type == "cpu"
        born = self._event()
        made = Storage(self._place(), self._running(), storage.nbytes(), host, place, born)

        def end(_: ref[Any]) -> None:
            self._alive.pop(place, None)
            made.died = self._event()

        self.every.append(made)
        self._alive[place] = made, ref(storage, end)

    def _event(self) -> int:
        self.events += 1
        running = self._running()
        if running is not None:
            self.last[running] = self.events
        return self.events

    def _copy(self, into: Storage, source: Any) -> None:
        """A copy to or from a host is called what it copies."""
        found = self._alive.get(key(source)) if isinstance(source, Tensor) else None
        if found is not None and found[0].host != into.host:
            into.name, into.during, into.copied = found[0].name, found[0].during, True

    def _read(self, message: Storage) -> None:
        """What came from another stage belongs to the pass that reads it."""
        if self._running() is not None:
            message.name, message.during = "given", self._running()
            message.read = self.events


def fullest(storages: list[Storage], since: int) -> int:
    """The event, of those behind `since`, after which the device held most."""
    changes: Counter[int] = Counter()
    for one in storages:
        if not one.host:
            changes[one.born] += one.bytes
            if one.died is not None:
                changes[one.died] -= one.bytes
    held = most = at = 0
    for event in sorted(changes):
        held += changes[event]
        if event > since and held > most:
            most, at = held, event
    return at


def _product(left: Tensor, right: Tensor) -> float:
    """FLOP of a product of two matrices, or of several; none of one with a vector, which no matrix
    unit computes."""
    rows, inner = left.shape[-2:]
    columns = right.shape[-1]
    return 0.0 if min(rows, inner, columns) == 1 else 2.0 * left.numel() * columns
