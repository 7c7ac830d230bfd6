"""One layer's part of what a forward pass keeps: the unit that goes to host memory and comes back.

What a layer keeps leaves when its forward is over, under the forward of the next one; the layer
after that waits until it is out, so that the device has two layers' at most. It comes back when the
backward of the layer behind it begins (Kimi K2, arXiv:2507.20534, section 2.4.3: the copy engine
fetches ahead for the next backward).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import ref

import torch

from reference.memory.host import Parcel, Underway, fetch, send

if TYPE_CHECKING:
    from reference.memory.held import Held


class Unit:
    """What one layer, or everything outside of layers, keeps of one forward pass."""

    def __init__(self, layer: int | None, before: Unit | None = None) -> None:
        self.layer = layer
        self.before = before
        """The layer whose backward follows this one's."""
        self._helds: list[ref[Held]] = []
        self._sent: torch.Event | Underway | None = None
        self._begun = False

    def settle(self, helds: Iterable[ref[Held]]) -> None:
        """The forward is over, and these are what autograd may still hold of it."""
        self._helds.extend(helds)

    def helds(self) -> list[Held]:
        """What the backward pass still needs."""
        return [held for one in self._helds if (held := one()) is not None]

    def send(self) -> None:
        """Begin to copy all of it to the host."""
        self._sent = send(self._parcels())

    def wait(self) -> None:
        """Let the device wait until all is out."""
        if self._sent is not None:
            self._sent.wait()

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
        fetch(self._parcels(), self._sent)

    def _parcels(self) -> list[Parcel]:
        return [part for held in self.helds() if held.form for part in held.form.parcels()]
