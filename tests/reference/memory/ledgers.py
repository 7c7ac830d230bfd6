"""Sums over what forwards keep."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reference.memory.optimizer_states import Bytes
from reference.memory.saved_tensor import KeptBytes


def by_layer(ledger: Iterable[KeptBytes]) -> dict[int | None, Bytes]:
    """What each layer keeps of one forward pass; None: embedding, head and loss."""
    return _summed((kept.layer, kept) for kept in ledger)


def by_name(ledger: Iterable[KeptBytes], layer: int | None) -> dict[str, Bytes]:
    """What one layer keeps, by the op or mark that made it."""
    return _summed((kept.name, kept) for kept in ledger if kept.layer == layer)


def _summed(kept: Iterable[tuple[Any, KeptBytes]]) -> dict[Any, Bytes]:
    found: dict[Any, Bytes] = {}
    for group, one in kept:
        before = found.get(group, Bytes())
        found[group] = Bytes(before.device + one.device, before.host + one.host)
    return found
