"""What a conversion did."""

from __future__ import annotations

from dataclasses import dataclass

from twin.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class Done:
    """The model that was converted, and what was written."""

    model: ModelSpec
    tensors: int
    bytes: int
    """Of tensors on disk."""
    notes: tuple[str, ...]
    """What a reader must know, as sentences."""
