"""An update in one process: trainer and engine take turns on the same device, and nothing has to be
sent. What a colocated controller does between a step of training and the next rollouts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from reference.inference.engine import Engine
from reference.model import Transformer
from reference.weight_sync.buckets import buckets, buffers, largest, shares
from reference.weight_sync.host_copies import HostCopies
from reference.weight_sync.layout import LayoutSpec, SyncSpec, seats
from reference.weight_sync.needs import Target, needs_of, reload
from reference.weight_sync.record import Record
from reference.weight_sync.units import full_set, values
from twin.spec.model import ModelSpec


class Colocated:
    """The full set in host memory, between a trainer and an engine of one process."""

    def __init__(self, model: ModelSpec, dtype: torch.dtype, sync: SyncSpec | None = None) -> None:
        self._sync = sync or SyncSpec()
        self._units = full_set(model, dtype)
        (seat,) = seats(LayoutSpec(), model)
        self._needs = needs_of(self._units, seat, tied=model.tied_embeddings)
        alone = {unit.name: (0,) for unit in self._units}
        self._owned = shares(self._units, alone, 1)
        self._copies = HostCopies(self._owned[0], pinned=torch.cuda.is_available())
        self.record = Record()

    @property
    def bytes(self) -> int:
        """Of the full set."""
        return self._copies.bytes

    def keep(self, parts: Iterable[Transformer], version: int) -> None:
        """Copy the trainer's weights into host memory; the trainer's own may sleep then."""
        with self.record.span("keep", size=self._copies.bytes):
            self._copies.gather(values(parts), version)

    def update(self, target: Target, device: torch.device | str = "cpu") -> None:
        """Put what was kept into an engine: a bucket comes from the host while the one before is
        reloaded, on a GPU; on a CPU in turn."""
        version = self._copies.version
        assert version is not None, "keep weights before"
        space = buffers(self._sync.free_memory, self._sync.bucket, largest(self._units))
        made = buckets(self._owned, space.bytes)
        size = max(bucket.bytes for bucket in made)
        halves = [torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2)]
        for number, bucket in enumerate(made):
            half = halves[number % 2][: bucket.bytes]
            with self.record.span("host_copy", bucket):
                half.copy_(self._copies.part(bucket), non_blocking=True)
            with self.record.span("reload", bucket):
                reload(bucket, half, self._needs, target.tensors)
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize(device)
        target.end(version)


class Served:
    """An engine of one process. It must not step while an update runs: its weights are of two
    versions then."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.tensors: Mapping[str, Tensor] = engine.model.state_dict()

    def end(self, version: int) -> None:
        """Drop the cache of the old weights; who runs goes on under the new ones."""
        self._engine.update_weights(self.tensors, version)  # in place: torch copies nothing
