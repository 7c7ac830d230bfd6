"""A rank's share of the full set in host memory: what it sends from, and what others read when they
recover. Pinned where the model is on a GPU, so that copies to it run at the link's rate.

The share is one line of bytes, so that a bucket is one copy however many tensors it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock

import torch
from torch import Tensor

from reference.weight_sync.buckets import Bucket, padded
from reference.weight_sync.needs import viewed
from reference.weight_sync.units import Unit
from twin.errors import Problem, UsageError


class HostCopies:
    """The share of one owner. `version` is None until all of it is of one version."""

    def __init__(self, units: Sequence[Unit], *, pinned: bool = False) -> None:
        self.units = {unit.name: unit for unit in units}
        self._places: dict[str, int] = {}
        size = 0
        for unit in units:
            self._places[unit.name] = size
            size += padded(unit)
        self.memory = torch.zeros(size, dtype=torch.uint8, pin_memory=pinned)
        self.version: int | None = None
        self._held = Lock()

    @property
    def bytes(self) -> int:
        """Of its tensors, without gaps."""
        return sum(unit.bytes for unit in self.units.values())

    def gather(self, values: Mapping[str, Tensor], version: int) -> int:
        """Copy the owner's tensors out of the model; the bytes copied."""
        with self._held, torch.no_grad():
            self.version = None
            for name, unit in self.units.items():
                value = values[name]
                assert value.dtype == unit.dtype, f"{name} is {value.dtype}, not {unit.dtype}"
                self.tensor(name).copy_(value, non_blocking=True)
            if self.memory.is_pinned():
                torch.cuda.synchronize()
            self.version = version
        return self.bytes

    def tensor(self, name: str) -> Tensor:
        """One of its tensors, as a view."""
        return viewed(self.memory, self.units[name], self._places[name])

    def part(self, bucket: Bucket) -> Tensor:
        """The bytes of a bucket, as a view."""
        return self.memory[bucket.start : bucket.start + bucket.bytes]

    @contextmanager
    def reading(self, name: str, version: int) -> Iterator[Tensor]:
        """The bytes of a tensor, which stay as they are meanwhile. Raises UsageError TW625 where
        they are of another version by now."""
        with self._held:
            if name not in self.units or self.version != version:
                message = f"version {version} of `{name}` is not held here"
                fix = f"ask for version {self.version}"
                raise UsageError([Problem("TW625", "version", message, fix)])
            start = self._places[name]
            yield self.memory[start : start + self.units[name].bytes]
