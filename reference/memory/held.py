"""The forms in which a tensor waits for its backward pass: kept, in FP8, or made again.

What waits is a storage, not a tensor: several of the tensors that autograd saves may lie on one
storage, which is kept, packed, copied or made again once. A `Handle` is what autograd holds in a
tensor's place; with the last handle on it a storage is free.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, UntypedStorage
from torch.multiprocessing.reductions import StorageWeakRef

from reference.kernels.fp8 import Fp8, dequantize, quantize
from reference.memory.host import Parcel

if TYPE_CHECKING:
    from reference.memory.frame import Frame
    from reference.memory.unit import Unit


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


class Held:
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

    def __init__(self, held: Held, tensor: Tensor) -> None:
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

    def __init__(self, held: Held, tensor: Tensor) -> None:
        self.held = held
        self._tensor = tensor.detach()

    def tensor(self) -> Tensor:
        """The tensor without its history."""
        return self._tensor


def key(tensor: Tensor) -> int:
    """What tells the storage of a tensor from all others that are alive or that a `Held` refers
    to."""
    return tensor.untyped_storage()._cdata  # noqa: SLF001 - torch has no public identity


def _bytes(parcels: tuple[Parcel, ...]) -> tuple[int, int]:
    host = sum(one.value.nbytes for one in parcels if one.on_host)
    return sum(one.value.nbytes for one in parcels) - host, host
