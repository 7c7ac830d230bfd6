"""Tensors that wait for a backward pass: kept, in FP8, in host memory, or made again.

What waits is a storage, not a tensor: several of the tensors that autograd saves may lie on one
storage, which is kept, packed, copied or made again once. A `Handle` is what autograd holds in a
tensor's place; with the last handle on it a storage is free.

A `Frame` is a forward that runs again in the backward pass: one op, or a whole layer. While it runs
for the first time, what autograd saves inside gets handles on nothing; only its inputs wait. The
first handle that is read runs it again, with gradients on, so that autograd saves the same tensors
in the same order, to the same bits. The backward itself is that of the first run. Random numbers
and autocast are not restored: the model uses neither.

A `Unit` is what one layer keeps of a forward pass. It leaves for host memory when its forward is
over, under the forward of the next layer; the layer after that waits until it is out, so that the
device holds two layers' at most. It comes back when the backward of the layer behind it begins
(Kimi K2, arXiv:2507.20534, section 2.4.3: the copy engine fetches ahead for the next backward).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import local
from typing import TYPE_CHECKING, Any, Literal
from weakref import ref

import torch
from torch import Tensor, UntypedStorage
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from reference import streams
from reference.kernels.deferred_wgrad import current, deferring_to
from reference.kernels.fp8 import Fp8, dequantize, quantize
from reference.memory.host import Parcel, fetch, send
from reference.streams import Event

if TYPE_CHECKING:
    from reference.memory.stash import Stash


class Now(local):
    """The state of one thread."""

    stash: Stash | None = None
    """Whose policy holds for what runs."""
    again: bool = False
    """Whether a backward pass runs a forward again."""

    @contextmanager
    def running_again(self) -> Iterator[None]:
        """While a forward runs again."""
        before, self.again = self.again, True
        try:
            yield
        finally:
            self.again = before


now = Now()


class Form(ABC):
    """How a storage waits."""

    @abstractmethod
    def storage(self) -> UntypedStorage:
        """The storage as the forward pass had it; from FP8, rounded."""

    @property
    @abstractmethod
    def bytes(self) -> tuple[int, int]:
        """What it takes to bring the storage back, on the device and on the host."""

    def parcels(self) -> tuple[Parcel, ...]:
        """The tensors that may go to host memory meanwhile."""
        return ()


class Kept(Form):
    """As it is."""

    def __init__(self, storage: UntypedStorage) -> None:
        self._storage = storage

    def storage(self) -> UntypedStorage:
        """The storage itself."""
        return self._storage

    @property
    def bytes(self) -> tuple[int, int]:
        """All of the storage, whatever part of it a tensor shows."""
        return self._storage.nbytes(), 0


class Sent(Form):
    """As it is, in host memory between its layer's passes."""

    def __init__(self, storage: UntypedStorage) -> None:
        flat = torch.empty(0, dtype=torch.uint8, device=storage.device)
        self._parcel = Parcel(flat.set_(storage))

    def storage(self) -> UntypedStorage:
        """A copy of the storage, or the storage if it never left."""
        return self._parcel.tensor().untyped_storage()

    @property
    def bytes(self) -> tuple[int, int]:
        """All of the storage, here or there."""
        return _bytes((self._parcel,))

    def parcels(self) -> tuple[Parcel, ...]:
        """The storage's bytes."""
        return (self._parcel,)


class Packed(Form):
    """In FP8-E4M3 with an fp32 scale per 1 x 128 numbers (Kimi K2, arXiv:2507.20534, section
    2.4)."""

    def __init__(self, tensor: Tensor) -> None:
        packed = quantize(tensor)
        self._dtype = tensor.dtype
        self._parcels = (Parcel(packed.values_XD.contiguous()), Parcel(packed.scales_XJ))
        self._whole: UntypedStorage | None = None

    def storage(self) -> UntypedStorage:
        """The numbers in their own type, unpacked once."""
        if self._whole is None:
            values, scales = (one.tensor() for one in self._parcels)
            whole = dequantize(Fp8(values, scales), self._dtype)
            # Without the end of a last tile that is not full.
            self._whole = whole.contiguous().untyped_storage()
        return self._whole

    @property
    def bytes(self) -> tuple[int, int]:
        """Values and scales, here or there."""
        return _bytes(self._parcels)

    def parcels(self) -> tuple[Parcel, ...]:
        """Values and scales."""
        return self._parcels


class Again(Form):
    """Not at all: the forward that made it runs again."""

    def __init__(self, frame: Frame) -> None:
        self._frame: Frame | None = frame
        self.made: UntypedStorage | None = None

    def storage(self) -> UntypedStorage:
        """The storage as the second run made it."""
        if self.made is None:
            assert self._frame is not None
            self._frame.run()
            self._frame = None
        assert self.made is not None, "the second forward saved other tensors than the first"
        return self.made

    @property
    def bytes(self) -> tuple[int, int]:
        """Nothing, until it is made again."""
        return 0, 0


@dataclass(frozen=True, slots=True)
class KeptBytes:
    """One storage that waits for a backward pass, and where its bytes are."""

    layer: int | None
    """The layer that keeps it; None: outside of layers."""
    name: str
    """What made it: the name of an op or a mark, or "" for all others."""
    device: int
    host: int
    storage: int = 0
    """Which storage it was in the forward (`key`)."""


class SavedStorage:
    """One storage that the backward pass needs, and the form in which it waits."""

    __slots__ = ("__weakref__", "_alive", "_key", "form", "name", "unit")

    def __init__(self, tensor: Tensor, unit: Unit, name: str, form: Form | None) -> None:
        # The address of a storage is not used again while somebody refers to it, even weakly.
        self._alive = StorageWeakRef(tensor.untyped_storage())
        self._key = key(tensor)
        self.unit = unit
        self.name = name
        self.form = form
        """None: it has a name, and nobody has saved it yet."""

    def count(self) -> KeptBytes:
        """What it takes to bring it back."""
        device, host = self.form.bytes if self.form else (0, 0)
        return KeptBytes(self.unit.layer, self.name, device, host, self._key)


class Handle:
    """A tensor on a storage that waits."""

    __slots__ = ("_dtype", "_offset", "_size", "_stride", "held")

    def __init__(self, held: SavedStorage, tensor: Tensor) -> None:
        self.held = held
        self._dtype = tensor.dtype
        self._size = tensor.size()
        self._stride = tensor.stride()
        self._offset = tensor.storage_offset()

    def tensor(self) -> Tensor:
        """The tensor without its history."""
        self.held.unit.begin()
        assert self.held.form is not None
        storage = self.held.form.storage()
        empty = torch.empty(0, dtype=self._dtype, device=storage.device)
        return empty.set_(storage, self._offset, self._size, self._stride)


class Near(Handle):
    """A tensor that stays where it is."""

    __slots__ = ("_tensor",)

    def __init__(self, held: SavedStorage, tensor: Tensor) -> None:
        self.held = held
        self._tensor = tensor.detach()

    def tensor(self) -> Tensor:
        """The tensor without its history."""
        return self._tensor


def key(tensor: Tensor) -> int:
    """The identity of a tensor's storage among all that are alive or that a `SavedStorage` refers
    to."""
    return tensor.untyped_storage()._cdata  # noqa: SLF001 - torch has no public identity


def _bytes(parcels: tuple[Parcel, ...]) -> tuple[int, int]:
    host = sum(one.value.nbytes for one in parcels if one.on_host)
    return sum(one.value.nbytes for one in parcels) - host, host


Place = tuple[Literal["saved", "output"], int]
"""Which tensor of a run: the n-th that autograd saves, or the n-th output."""


class Frame:
    """One call of `fn(*inputs)`, and who needs what it made."""

    def __init__(
        self, fn: Callable[..., Any], inputs: tuple[Any, ...], wait: Callable[[Tensor], Any]
    ) -> None:
        """`wait` gives what stands for an input until the backward pass."""
        self._fn = fn
        self._deferred = current()
        self._inputs = tuple(wait(one) if isinstance(one, Tensor) else one for one in inputs)
        self._need = tuple(isinstance(one, Tensor) and one.requires_grad for one in inputs)
        self._wanted: dict[Place, ref[SavedStorage]] = {}
        self.saved = 0
        """Tensors that autograd has saved inside."""

    def want(self, place: Place, held: SavedStorage) -> None:
        """A storage that the second run will make."""
        self._wanted[place] = ref(held)

    def run(self) -> None:
        """Run again, and give everybody who is still there what was made."""
        inputs = map(_input, self._inputs, self._need)
        count = 0

        def keep(tensor: Tensor) -> None:
            nonlocal count
            self._give(("saved", count), tensor)
            count += 1

        with (
            now.running_again(),
            torch.enable_grad(),
            saved_tensors_hooks(keep, _never),
            deferring_to(self._deferred),
        ):
            outputs = self._fn(*inputs)
        for place, output in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
            if isinstance(output, Tensor):
                self._give(("output", place), output)
        self._inputs, self._wanted = (), {}

    def _give(self, place: Place, tensor: Tensor) -> None:
        wanted = self._wanted.get(place)
        held = wanted() if wanted else None
        if held is not None and isinstance(held.form, Again):
            held.form.made = tensor.untyped_storage()


def _input(waits: Any, needs_gradient: bool) -> Any:
    if isinstance(waits, Handle):
        waits = waits.tensor()
    return waits.requires_grad_(needs_gradient) if isinstance(waits, Tensor) else waits


def _never(_: None) -> Tensor:
    raise AssertionError("the second run has no backward of its own")


class Unit:
    """What one layer, or everything outside of layers, keeps of one forward pass."""

    def __init__(self, layer: int | None, before: Unit | None = None) -> None:
        self.layer = layer
        self.before = before
        """The layer whose backward follows this one's."""
        self._helds: list[ref[SavedStorage]] = []
        self._sent: tuple[torch.device, Event] | None = None
        self._begun = False

    def settle(self, helds: Iterable[ref[SavedStorage]]) -> None:
        """The forward is over, and these are what autograd may still hold of it."""
        self._helds.extend(helds)

    def helds(self) -> list[SavedStorage]:
        """What the backward pass still needs."""
        return [held for one in self._helds if (held := one()) is not None]

    def send(self) -> None:
        """Begin to copy all of it to the host."""
        parcels = self._parcels()
        sent = send(parcels)
        self._sent = None if sent is None else (parcels[0].device, sent)

    def wait(self) -> None:
        """Let the device wait until all is out."""
        if self._sent is not None:
            device, sent = self._sent
            streams.current(device).wait_event(sent)

    def begin(self) -> None:
        """Fetch what is on the host, here and one layer ahead: this unit's backward begins."""
        if self._begun:
            return
        self._begun = True
        self.fetch()
        if self.before is not None:
            self.before.fetch()

    def fetch(self) -> None:
        """Begin to copy back what is on the host."""
        fetch(self._parcels())

    def _parcels(self) -> list[Parcel]:
        return [part for held in self.helds() if held.form for part in held.form.parcels()]
